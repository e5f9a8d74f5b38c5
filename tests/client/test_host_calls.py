"""What a tool host does with the calls that it is sent (R6.6): which may begin, how they run, how they end."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from tutelage.client import Tutelage
from tutelage.host import ToolHost

from tests.client.hosted import Tools, outcome, served
from tests.client.runtime_double import WAIT_SECONDS, RuntimeDouble, call


async def test_an_unknown_tool_has_not_run(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "paint"))
        results = await session.results()

    assert outcome(results["c1"]) == "not_run"


async def test_a_call_beyond_the_capacity_has_not_run(double: RuntimeDouble, runtime: Tutelage) -> None:
    tools = Tools(capacity=1)
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "wait"), call("c2"))
        refused = await session.results()
        tools.opened.set()
        await session.results()
        session.call(call("c3"))
        taken = await session.results()

    assert session.hello.capacity == 1
    assert {key: outcome(result) for key, result in refused.items()} == {"c2": "not_run"}
    assert taken["c3"].output_json == '"ok"'
    assert tools.runs == ["c1", "c3"]


async def test_an_attempt_older_than_one_seen_has_not_run(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    """Scenario 24b: the host refuses the older attempt, also in another session."""
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        first.call(call("c2", key="k", attempt=2))
        await first.results()
        first.take("c2")
        first.end()
        second = await double.hosts.session()
        second.call(call("c1", key="k", attempt=1))
        older = await second.results()
        second.call(call("c3", key="k", attempt=3))
        newer = await second.results()

    assert outcome(older["c1"]) == "not_run"
    assert outcome(newer["c3"]) == "output_json"
    assert tools.runs == ["c2", "c3"]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_call_that_is_read_too_late_has_not_run(double: RuntimeDouble, runtime: Tutelage) -> None:
    """Scenario 24h: `begin_by` counts from the session's hello, by a clock that runs on meanwhile."""
    clock = Clock()
    tools = Tools(clock=clock)
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        clock.now += 5.1
        session.call(call("c1", begin_by=5.0), call("c2", begin_by=5.2))
        results = await session.results(2)

    assert outcome(results["c1"]) == "not_run"
    assert outcome(results["c2"]) == "output_json"
    assert tools.runs == ["c2"]


async def test_a_new_hello_begins_the_time_anew(double: RuntimeDouble, runtime: Tutelage) -> None:
    clock = Clock()
    tools = Tools(clock=clock)
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        clock.now += 100
        first.end()
        second = await double.hosts.session()
        second.call(call("c1", begin_by=5.0))
        results = await second.results()

    assert outcome(results["c1"]) == "output_json"


async def test_the_time_is_looked_at_again_as_the_thread_begins(double: RuntimeDouble, runtime: Tutelage) -> None:
    """Scenario 24h, in a queue: read in time, but its thread is free only when it is too late."""
    clock = Clock()
    tools = Tools(capacity=2, clock=clock)
    blocked = threading.Event()
    reached = threading.Barrier(3)

    # Holds the thread between the queue and the function: where a stopped process would stand.
    def held_up(input_json: str) -> dict[str, object]:
        reached.wait(WAIT_SECONDS)
        assert blocked.wait(WAIT_SECONDS)
        return {}

    tools.host.tools["note"].arguments = held_up  # type: ignore[method-assign]
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", begin_by=5.0), call("c2", begin_by=50.0))
        await asyncio.to_thread(reached.wait, WAIT_SECONDS)
        clock.now += 10
        blocked.set()
        results = await session.results(2)

    assert outcome(results["c1"]) == "not_run"
    assert outcome(results["c2"]) == "output_json"
    assert tools.runs == ["c2"]


async def test_a_call_that_waits_ends_as_not_run_when_it_is_cancelled(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    """Cancelled in the same breath as it came: before its function is begun."""
    blocked = threading.Event()
    reached = threading.Event()

    def held_up(input_json: str) -> dict[str, object]:
        reached.set()
        assert blocked.wait(WAIT_SECONDS)
        return {}

    tools.host.tools["note"].arguments = held_up  # type: ignore[method-assign]
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1"))
        await asyncio.to_thread(reached.wait, WAIT_SECONDS)
        session.cancel("c1", "unheard of")
        results = await session.results()
        blocked.set()
        session.call(call("c2", "who"))
        after = await session.results()

    assert outcome(results["c1"]) == "not_run"
    assert list(after) == ["c2"]
    assert tools.runs == []


async def test_an_async_tool_that_runs_is_stopped(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "wait"))
        await tools.began.wait()
        session.cancel("c1")
        results = await session.results()

    assert results["c1"].error == "The call was cancelled while it ran."


async def test_a_plain_tool_that_runs_is_let_finish(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    """A thread cannot be stopped: what it returns is told, and is the truth."""
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "wait_in_thread"))
        await asyncio.to_thread(tools.thread_began.wait)
        session.cancel("c1")
        tools.thread_opened.set()
        results = await session.results()

    assert results["c1"].output_json == '"waited"'


@pytest.mark.parametrize(
    ("tool", "how", "words"),
    [
        ("fail", "raises", "ValueError: no note of that name"),
        ("fail", "exits", "SystemExit: 3"),
        ("fail", "cancels", "CancelledError"),
        ("fail", "stops", "StopAsyncIteration"),
        ("fail", "odd", "The tool's output is not JSON: "),
        ("fail_in_thread", "raises", "ValueError: no note of that name"),
        ("fail_in_thread", "exits", "SystemExit: 3"),
        ("fail_in_thread", "stops", "StopIteration"),
        ("fail_in_thread", "odd", "The tool's output is not JSON: "),
    ],
)
async def test_a_tool_that_fails_says_so_and_the_host_lives(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools, tool: str, how: str, words: str
) -> None:
    """A7, scenario 25: whatever a tool does is its call's outcome and no more."""
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", tool, json.dumps({"how": how})))
        results = await session.results()
        session.call(call("c2"))
        after = await session.results()

    assert results["c1"].error.startswith(words)
    assert "Traceback" not in results["c1"].error
    assert outcome(after["c2"]) == "output_json"


async def test_input_that_does_not_fit_is_told(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "fail", '{"how": 1}'))
        results = await session.results()

    assert results["c1"].error.startswith("The input does not fit. how: ")


async def test_a_blocking_tool_does_not_block_the_others(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "wait_in_thread"))
        await asyncio.to_thread(tools.thread_began.wait)
        session.call(call("c2"))
        first = await session.results()
        tools.thread_opened.set()
        second = await session.results()

    assert list(first) == ["c2"]
    assert list(second) == ["c1"]


async def test_many_large_results_are_split(double: RuntimeDouble, runtime: Tutelage) -> None:
    """R12: batches on `Serve` are split at 3 MiB."""
    host = ToolHost("notes")
    gate = asyncio.Event()

    @host.tool()
    async def large() -> str:
        """Return a megabyte."""
        await gate.wait()
        return "x" * 1_000_000

    async with served(host, runtime):
        session = await double.hosts.session()
        session.call(*(call(f"c{number}", "large") for number in range(10)))
        gate.set()
        results = await session.results(10)
        session.end()
        again = await double.hosts.session()
        sizes = []
        found = 0
        while found < 10:
            message = await again.hear()
            assert message is not None
            sizes.append(message.ByteSize())
            found += len(message.results.results)

    assert len(results) == 10
    assert len(sizes) == 4
    assert max(sizes) < 3.2 * 1024 * 1024
