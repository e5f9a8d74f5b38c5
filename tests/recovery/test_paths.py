"""Narrow ways through the engine: what rests, what wakes it, and what a fault of the database leaves behind."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tutelage.runtime.v1.agents_pb2 import Limits
from tutelage.runtime.v1.turns_pb2 import Resolution

from runtime_service.engine import scheduler
from tests.recovery.conftest import HostMaker
from tests.recovery.hand_host import HandHost, Stream, changes, not_run, returned
from tests.recovery.house import NOTHING, House, Rules, house, until

ONE_CALL: Rules = [{"when": "step == 0", "calls": [{"tool": "write"}]}, {"say": "Done."}]
BOTH: Rules = [{"when": "step == 0", "calls": [{"tool": "write"}, {"tool": "send"}]}, {"say": "Done."}]


@contextmanager
def fails(here: House, when: str, on: str = "records") -> Iterator[None]:
    """Have the database itself refuse to insert such rows, for as long as the block lasts."""
    here.sql(f"CREATE TRIGGER fault BEFORE INSERT ON {on} WHEN {when} BEGIN SELECT RAISE(ABORT, 'fault'); END")
    try:
        yield
    finally:
        here.sql("DROP TRIGGER fault")


# Rests, and what wakes them


async def test_a_yes_without_a_host_rests_and_goes_on_by_itself(here: House, host: HostMaker) -> None:
    """21: interrupted with its cause, the yes is not lost, and the hello of a host is enough."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    turn = await here.begin("agent")
    [approval] = await here.asked(turn)
    one.stream.break_()
    await here.decide(approval)
    stopped = await here.comes_to(turn, "INTERRUPTED")
    assert stopped.cause == "no connected host offers write"
    assert not stopped.unfinished
    async with here.no_commit():
        await asyncio.sleep(2.5)
    two = await host(changes("write"))
    await two.say(returned(await two.stream.call()))
    await here.comes_to(turn, "DONE")
    assert len(here.paid("agent")) == 2


async def test_approved_and_the_host_gone_with_another_call_pending(here: House, host: HostMaker) -> None:
    """24g: the turn rests and burns nothing; each goes on when its own word comes."""
    one = await host(changes("write"))
    two = await host(changes("send"))
    await here.agent("agent", BOTH, ["write", "send"])
    turn = await here.begin("agent")
    asked = {approval.tool: approval for approval in await here.asked(turn, 2)}
    one.stream.break_()
    await here.decide(asked["write"])
    await here.comes_to(turn, "INTERRUPTED")
    async with here.no_commit():
        await asyncio.sleep(2.5)
    await here.decide(asked["send"])
    await two.say(returned(await two.stream.call()))
    await here.recorded(turn, "tool_done")
    await here.comes_to(turn, "INTERRUPTED")
    stream = await one.connect()
    await one.say(returned(await stream.call()))
    await here.comes_to(turn, "DONE")
    assert len(here.paid("agent")) == 2
    await here.assert_sound()


async def test_a_host_that_says_not_run_and_leaves_lets_the_turn_rest(here: House, host: HostMaker) -> None:
    """R3.1, 24g: a word that needs no copy keeps nobody from letting the turn go."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    turn = await here.begin("agent")
    [approval] = await here.asked(turn)
    await here.decide(approval)
    call = await one.stream.call()
    await one.drain()
    await one.say(not_run(call))
    await one.stream.hears("taken", call)
    await one.stream.done()
    stopped = await here.comes_to(turn, "INTERRUPTED")
    assert stopped.cause == "no connected host offers write"
    async with here.no_commit():
        await asyncio.sleep(1.5)
    two = await host(changes("write"))
    again = await two.stream.call()
    assert again.attempt == 2
    await two.say(returned(again))
    await here.comes_to(turn, "DONE")


async def test_each_of_two_hosts_that_are_waited_for_is_enough_for_its_own_call(here: House, host: HostMaker) -> None:
    """R6.7: an approved call waits for the hello of one that offers it, whatever the others wait for."""
    for first, second in (("write", "send"), ("send", "write")):
        both = await host(changes("write"), changes("send"))
        await here.agent("agent", BOTH, ["write", "send"])
        turn = await here.begin("agent")
        asked = await here.asked(turn, 2)
        both.stream.break_()
        for approval in asked:
            await here.decide(approval)
        await here.comes_to(turn, "INTERRUPTED")
        one = await host(changes(first))
        await one.say(returned(await one.stream.call(3)))
        two = await host(changes(second))
        await two.say(returned(await two.stream.call(3)))
        await here.comes_to(turn, "DONE")
        one.stream.break_()
        two.stream.break_()


async def test_another_schema_is_asked_anew_and_another_description_is_not(here: House, host: HostMaker) -> None:
    """24f."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    turn, other = await here.begin("agent"), await here.begin("agent")
    [approval], [second] = await here.asked(turn), await here.asked(other)
    one.stream.break_()
    described = changes("write")
    described.description = "It writes, now in words."
    two = await host(described)
    await here.decide(approval)
    await two.say(returned(await two.stream.call()))
    await here.comes_to(turn, "DONE")
    two.stream.break_()
    three = await host(changes("write", schema='{"type":"object","properties":{"n":{"type":"integer"}}}'))
    await here.decide(second)

    async def asked_anew() -> bool:
        waiting = (await here.turn(other)).waiting
        return bool(waiting) and waiting[0].id != second.id

    await until(asked_anew, "another question")
    await three.stream.no_call()
    [anew] = (await here.turn(other)).waiting
    assert anew.supersedes == second.id
    await here.decide(anew)
    await three.say(returned(await three.stream.call()))
    await here.comes_to(other, "DONE")
    assert len(await here.of_kind(other, "tool_started")) == 1


async def test_what_is_free_is_taken_as_a_service_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6.1: at once, not at the first poll."""
    async with house(tmp_path) as here:
        await here.agent("agent", [{"delay_ms": 60_000, "say": "Too late."}])
        turn = await here.begin("agent")
        await here.recorded(turn, "task_started")
        here.script("agent", [{"say": "Done."}])
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 3_600.0)
    async with house(tmp_path) as here:
        await here.comes_to(turn, "DONE")


# Faults of the database


async def test_a_reply_that_is_not_kept_is_not_paid_for_again_at_once(here: House) -> None:
    """A write behind that fails ends its writer; the turn is tried again later each time, and goes on at last."""
    await here.agent("agent", [{"say": "Done."}])
    await here.agent("other", [{"say": "Done."}])
    with fails(here, "NEW.kind = 'model_replied' AND NEW.address = 'agent'"):
        turn = await here.begin("agent")
        stopped = await here.comes_to(turn, "INTERRUPTED")
        assert stopped.cause
        # What shares its batches is not taken down with it.
        others = await asyncio.gather(*(here.begin("other") for _ in range(20)))
        for other in others:
            await here.comes_to(other, "DONE")
        await asyncio.sleep(1.5)
        assert len(here.paid("agent")) <= 2
    await here.comes_to(turn, "DONE")
    await here.assert_sound()


async def test_a_unit_that_fails_takes_no_other_of_its_batch_with_it(here: House, host: HostMaker) -> None:
    """R5.5: tried one at a time; the turn of the one that fails goes on later."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    ill = await here.start(await here.conversation("agent", NOTHING), "ill")
    call = await one.stream.call()
    with fails(here, f"NEW.turn_id = '{ill}' AND NEW.kind = 'tool_done'"):
        turns = [await here.begin("agent", NOTHING) for _ in range(20)]
        calls = [await one.stream.call() for _ in turns]
        await one.say(*(returned(each) for each in (call, *calls)))
        for turn in turns:
            await here.comes_to(turn, "DONE")
        await here.comes_to(ill, "INTERRUPTED")
    await here.comes_to(ill, "DONE")
    await one.stream.no_call()
    await here.assert_sound()


async def test_a_word_on_an_unfinished_call_and_its_end_are_one(here: House, host: HostMaker) -> None:
    """A fault between the two must not leave a call that nobody can tell the end of."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    turn = await here.begin("agent", NOTHING)
    call = await one.stream.call()
    one.stream.break_()
    await here.comes_to(turn, "INTERRUPTED")
    with fails(here, "NEW.kind = 'tool_done'"):
        await here.resume(turn, Resolution(call_id=call.call_id, output_json='"seen"'))
        await until(lambda: _writer_of(here, turn, 2), "a second writer")
        await here.comes_to(turn, "INTERRUPTED")
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"seen"']
    assert len(await here.of_kind(turn, "unfinished_resolved")) == 1


async def _writer_of(here: House, turn: str, writer: int) -> bool:
    return (await here.turn(turn)).writer >= writer


async def test_a_reply_that_no_record_can_hold_is_never_acted_on(here: House, host: HostMaker) -> None:
    """R5.3: half a letter in a model's text cannot be kept; then nothing that follows from it may run."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    (here.scripts / "agent.yaml").write_text(
        '- {when: step == 0, say: "half a letter: \\ud83d", calls: [{tool: write}]}\n- say: Done.\n'
    )
    turn = await here.begin("agent", NOTHING)
    await here.comes_to(turn, "INTERRUPTED", "FAILED")
    await one.stream.no_call()
    assert await here.of_kind(turn, "tool_started") == []


# A lease that lapses


@pytest.mark.parametrize("here", [{"lease_seconds": 1.0, "lease_keep_seconds": 0.3}], indirect=True)
async def test_a_host_that_comes_while_a_lapsed_lease_ends_is_sent_its_calls(
    here: House, stack: AsyncExitStack
) -> None:
    """R6.6: its session stands under the lease that begins, not under the one that ends."""
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000)"
    here.sql(f"CREATE VIEW long AS {numbers} SELECT count(*) AS n FROM c")
    here.sql("CREATE TRIGGER slow BEFORE DELETE ON leases BEGIN SELECT n FROM long; END")
    [(process,)] = here.sql("SELECT process FROM leases")
    here.sql("UPDATE leases SET until = '2000-01-01 00:00:00.000000'")
    hosts: list[tuple[HandHost, Stream]] = []

    async def another() -> bool:
        one = await stack.enter_async_context(HandHost(here, changes(f"write{len(hosts)}")))
        hosts.append((one, await one.open()))
        await asyncio.sleep(0.05)
        return here.sql("SELECT process FROM leases") not in ([], [(process,)])

    await until(another, "another lease")
    tools = [f"write{number}" for number in range(len(hosts))]
    for one, stream in hosts:
        if stream.over.is_set():
            one.stream = await one.connect()
        else:
            one.stream = stream
            await stream.hears("welcome")
    await here.agent("agent", [{"when": "step == 0", "calls": [{"tool": tool} for tool in tools]}, {"say": "."}], tools)
    turn = await here.begin("agent", NOTHING)
    for one, _ in hosts:
        await one.say(returned(await one.stream.call(5)))
    await here.comes_to(turn, "DONE")
    await here.assert_sound()


@pytest.mark.parametrize("here", [{"lease_seconds": 1.0, "lease_keep_seconds": 0.1}], indirect=True)
async def test_a_hello_read_before_the_lease_lapsed_begins_its_session_under_the_next(
    here: House, stack: AsyncExitStack
) -> None:
    """R6.6: the lease lapses between the hello and its session, which would be over as it begins."""
    await here.agent("agent", ONE_CALL, ["write"])
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000)"
    here.sql(f"CREATE VIEW long AS {numbers} SELECT count(*) AS n FROM c")
    here.sql(
        "CREATE TRIGGER slow BEFORE INSERT ON conversations"
        " BEGIN SELECT n FROM long; UPDATE leases SET until = '2000-01-01 00:00:00.000000'; END"
    )
    # While this is written the lease is asked to be kept, and behind that a session to begin.
    opening = asyncio.create_task(here.conversation("agent", NOTHING))
    await until(lambda: _is_written_to(here), "a long transaction")
    one = await stack.enter_async_context(HandHost(here, changes("write")))
    await one.connect()
    turn = await here.start(await opening)
    await one.say(returned(await one.stream.call(5)))
    await here.comes_to(turn, "DONE")
    await here.assert_sound()


async def _is_written_to(here: House) -> bool:
    with closing(sqlite3.connect(here.database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


# Branches that end badly


async def test_a_call_that_was_started_is_sent_though_its_turn_fails_meanwhile(here: House, host: HostMaker) -> None:
    """R5.2, R6.6: where `ToolStarted` is on disk its host is sent the call, so that its end becomes known."""
    one = await host(changes("write"))
    await here.agent("deep", [{"say": "Deep."}])
    await here.agent(
        "middle",
        [
            {"when": "step == 0", "calls": [{"tool": "write"}, {"tool": "deep", "input": {"input": "go"}}]},
            {"say": "Done."},
        ],
        ["write"],
        below=["deep"],
    )
    await here.agent(
        "top",
        [{"when": "step == 0", "calls": [{"tool": "middle", "input": {"input": "go"}}]}, {"say": "Done."}],
        below=["middle"],
        limits=Limits(depth=1),
    )
    turn = await here.begin("top", NOTHING)
    await here.comes_to(turn, "FAILED")
    for start in await here.of_kind(turn, "tool_started"):
        call = await one.stream.call(3)
        assert call.call_id == start.call_id
        await one.say(returned(call))
        await one.stream.hears("taken", call)
    await one.stream.no_call()
