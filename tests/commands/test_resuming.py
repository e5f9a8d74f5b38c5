"""`tutelage turn resume`: a person's word on calls that may have run, by the commands that were printed (A14)."""

from __future__ import annotations

import shlex

from tutelage.cli.exits import Exit

from tests.commands.desk import Desk, found
from tests.services.book import Book
from tests.services.service import NOTHING_ASKED, Service, calls, within_deadline


async def loses_host(desk: Desk, agent: str) -> str:
    """Have a host take a call and go without a word; return the turn, once it is interrupted."""
    service, book = desk.service, Book(desk.folder / "book.jsonl")
    slow = ("slow_write", {"name": "todo.md"})
    await service.agent(agent, calls(slow), {"say": "Written."}, tools=["slow_write"], approve=NOTHING_ASKED)
    async with service.host("slow", book.slow_write()):
        turn_id = await desk.starts(agent)
        await within_deadline(book.slow_began.wait())
    await service.interrupted(turn_id)
    return turn_id


async def test_what_may_have_run_is_listed_with_the_commands_to_choose_from(desk: Desk, service: Service) -> None:
    """Nothing is done before a person has said what became of it; then the turn goes on (A14)."""
    turn_id = await loses_host(desk, "lost")

    waited = await desk.runs("turn", "wait", turn_id)
    asked = await desk.runs("turn", "resume", turn_id)
    command = shlex.split(found(r"^  returned    (.*)$", asked.out).replace("JSON", '"wrote it"'))
    ended = await desk.done(*command[1:], "--wait")

    assert "may have run (1)" in waited.refused(Exit.INTERRUPTED)
    assert "Nothing was done" in asked.refused(Exit.INTERRUPTED)
    assert 'name: "todo.md"' in asked.out
    assert ended == "Written.\n"
    resolved = await service.record(turn_id, "unfinished_resolved")
    assert (resolved.output_json, resolved.by.id) == ('"wrote it"', "gus")


async def test_a_call_is_said_to_have_failed(desk: Desk, service: Service) -> None:
    turn_id = await loses_host(desk, "broken")
    [call] = (await service.get(turn_id)).unfinished

    told = await desk.told("turn", "resume", turn_id, "--failed", f"{call.call_id}=The disk is full.", "--wait")

    assert told["state"] == "TURN_STATE_DONE"
    assert (await service.record(turn_id, "tool_done")).output_json == '"The disk is full."'


async def test_what_is_no_resolution_resolves_nothing(desk: Desk, service: Service) -> None:
    turn_id = await loses_host(desk, "unsaid")
    [call] = (await service.get(turn_id)).unfinished

    no_json = await desk.runs("turn", "resume", turn_id, "--returned", f"{call.call_id}=wrote it")
    no_call = await desk.runs("turn", "resume", turn_id, "--failed", "The disk is full.")
    another = await desk.runs("turn", "resume", turn_id, "--run-again", "c9")

    assert "stands in quotes" in no_json.refused(Exit.USAGE)
    assert "--failed 'CALL=…'" in no_call.refused(Exit.USAGE)
    assert "c9: This call is not unfinished" in another.refused()
    assert f"the turn: Say what became of each unfinished call; still unnamed: {call.call_id}" in another.refused()
    assert len((await service.get(turn_id)).unfinished) == 1
    await desk.done("turn", "abandon", turn_id, "--why", "Enough.")
