"""The nursery story on a model of one's own, as `make run YES=1 MODEL=…` tells it, whose words are not the scripts'."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

from tests.providers.wire import Answer, Arrived, Call, Says, Wire

STORY = Path(__file__).parents[2] / "clients" / "python" / "examples" / "nursery" / "story.py"


def thinks(arrived: Arrived) -> Answer:
    """Do the work of both agents, in words of its own, reading one note after the other."""
    said = arrived.body["messages"]
    asked = [place for place, one in enumerate(said) if one["role"] == "user"][-1]
    words, told = said[asked]["content"], [one["content"] for one in said[asked:] if one["role"] == "tool"]
    number = f"call_{len(arrived.body['messages'])}"
    if told and (told[-1].startswith(("The person did not allow", "wrote", "printed", "The person said"))):
        return Says(("Right. ", "I leave it there."))
    if named := re.match(r"Merge (\S+) into (\S+)\.", words):
        if len(told) < 2:
            return Says((), (Call(number, "read_note", (json.dumps({"name": named[len(told) + 1]}),)),))
        text = f"{told[0]}\nand\n{told[1]}"
        return Says(("So.",), (Call(number, "write_note", (json.dumps({"name": named[2], "text": text}),)),))
    if words.startswith("Print"):
        return Says((), (Call(number, "print_tag", ('{"words": "A bush of lavender"}',)),))
    return Says(("A bush ", "of lavender."))


async def test_the_story_does_not_depend_on_the_models_words(wire: Wire, tmp_path: Path) -> None:
    wire.thinks = thinks
    told = await asyncio.create_subprocess_exec(
        *(sys.executable, str(STORY), "--yes", "--data-dir", str(tmp_path), "--model", "openai-chat:gpt-4o"),
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(100):
            output = (await told.communicate())[0].decode()
    finally:
        if told.returncode is None:
            told.terminate()
            await told.wait()

    assert told.returncode == 0, output
    assert "All of it came out as told." in output
    assert (tmp_path / "tags.txt").read_text() == "A bush of lavender\n"
    assert not list((tmp_path / "scripts").glob("*.requests.jsonl"))
    assert len(wire.arrived) > 20
