"""An agent whose one tool changes the world, so it asks first: the README's first ten minutes."""

import asyncio
import os
import sys
from pathlib import Path

from tutelage import CHANGES, ToolHost, TutelageError, connect
from tutelage.journal_lines import line_of
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, ToolUse
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest
from tutelage.runtime.v1.turns_pb2 import StartTurnRequest, Work

host = ToolHost("hello")


@host.tool(effects=CHANGES)
def write_greeting(text: str) -> str:
    """Write a greeting into greeting.txt."""
    Path("greeting.txt").write_text(text + "\n")
    return "written"


async def main() -> None:
    runtime = connect(os.environ["TUTELAGE_TO_RUNTIME"], os.environ["TUTELAGE_TOKEN"])
    async with runtime, asyncio.TaskGroup() as group:
        group.create_task(host.serve(runtime))
        while not (await runtime.tools.ListTools(ListToolsRequest())).tools:  # until the host is known
            await asyncio.sleep(0.1)
        spec = AgentSpec(name="hello", purpose="You greet.", hosted=HostedLoop(model="scripted:hello"))
        spec.tools.append(ToolUse(tool="write_greeting"))
        await runtime.agents.PutAgent(PutAgentRequest(spec=spec))
        opened = await runtime.conversations.OpenConversation(OpenConversationRequest(agent="hello"))
        work = StartTurnRequest(conversation_id=opened.conversation.id, work=Work(input="Greet the world."))
        turn = (await runtime.turns.StartTurn(work)).turn
        print("turn", turn.id, flush=True)
        async for event in runtime.watch_turn(turn.id):
            if event.HasField("record"):
                print(event.record.line, line_of(event.record), flush=True)
        host.drain()


if __name__ == "__main__":
    said = None
    try:
        asyncio.run(main())
    except* TutelageError as refused:
        said = str(refused.exceptions[0])
    except* KeyboardInterrupt:
        said = "Stopped."
    sys.exit(said)
