"""Records replies of this version of the library for `golden/`: `python -m tests.providers.record`.

Run after the library was raised, so that later versions are held to reading what this one left in journals. What is
there stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
from importlib.metadata import version
from pathlib import Path

from runtime_service.engine.models import Asked, ModelRequest, ShownTool
from runtime_service.engine.providers import LibraryModels
from tests.providers.wire import Call, Says, Wire

GOLDEN = Path(__file__).parent / "golden"
MODELS = ("openai-chat:gpt-4o", "openai:gpt-5", "anthropic:claude-sonnet-5")
TOOLS = (ShownTool("read_note", "Read a note.", '{"type":"object"}'), ShownTool("water.bed", "Water.", "{}"))
CALLS = (
    Call("call_first", "read_note", ('{"name": ', '"tulips 🌷"}')),
    Call("call_second", "read_note", ('{"name": ',)),
    Call("call_third", "water_bed", ('{"litres": 9007199254740993}',)),
)
REPLIES = {
    "text": Says(("It is ", "watered. 🌷"), thought="The bed was dry."),
    "calls": Says(("I look.",), CALLS, thought="Three at once."),
}


async def record() -> None:
    wire = Wire()
    async with wire.serving(), LibraryModels(seconds=10) as library:
        # What a journal keeps of where a reply came from is the same wherever this runs.
        os.environ |= {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
        os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{wire.port}/v1"
        os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{wire.port}"
        for model in MODELS:
            for kind, says in REPLIES.items():
                wire.answers.append(says)
                reply = await library.ask(ModelRequest(model, ("Keep notes.",), (Asked("Go."),), TOOLS))
                kept = {
                    "model": model,
                    "text": reply.text,
                    "calls": [[call.tool, call.input_json] for call in reply.calls],
                    "raw_form": reply.raw_form,
                    "raw_json": reply.raw_json.replace(f":{wire.port}", ""),
                }
                name = f"{version('pydantic-ai-slim')}-{model.partition(':')[0]}-{kind}.json"
                text = json.dumps(kept, ensure_ascii=False, indent=1) + "\n"
                (GOLDEN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record())
