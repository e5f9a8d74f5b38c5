"""The tool host's side of `Serve` (R6.6), against a real server that speaks the contract as it is told to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.host import ToolHost
from tutelage.runtime.v1.tools_pb2 import CallResult
from tutelage.tools import CHANGES, current_call

from tests.client.runtime_double import WAIT_SECONDS, RuntimeDouble, call


class Tools:
    """A host's tools, with gates that the test opens and a count of what ran."""

    def __init__(self, capacity: int = 10, clock: Callable[[], float] | None = None) -> None:
        self.runs: list[str] = []
        self.began = asyncio.Event()
        self.opened = asyncio.Event()
        self.thread_began = threading.Event()
        self.thread_opened = threading.Event()
        self.host = ToolHost("notes", capacity=capacity, clock=clock) if clock else ToolHost("notes", capacity=capacity)

        @self.host.tool(effects=CHANGES)
        def note() -> str:
            """Write a note."""
            self.runs.append(current_call().call_id)
            return "ok"

        @self.host.tool()
        async def wait() -> str:
            """Wait for the gate."""
            self.runs.append(current_call().call_id)
            self.began.set()
            await self.opened.wait()
            return "waited"

        @self.host.tool()
        def wait_in_thread() -> str:
            """Wait for the gate, in a thread."""
            self.runs.append(current_call().call_id)
            self.thread_began.set()
            assert self.thread_opened.wait(WAIT_SECONDS)
            return "waited"

        @self.host.tool()
        async def fail(how: str) -> object:
            """Fail in one way or another."""
            match how:
                case "raises":
                    raise ValueError("no note of that name")
                case "exits":
                    raise SystemExit(3)
                case "cancels":
                    raise asyncio.CancelledError
                case "stops":
                    raise StopAsyncIteration
                case _:
                    return object()

        @self.host.tool()
        def fail_in_thread(how: str) -> object:
            """Fail in one way or another, in a thread."""
            match how:
                case "raises":
                    raise ValueError("no note of that name")
                case "exits":
                    raise SystemExit(3)
                case "stops":
                    raise StopIteration
                case _:
                    return object()

        @self.host.tool()
        def who() -> dict[str, object]:
            """Tell which call this is."""
            now = current_call()
            return {
                "call": now.call_id,
                "key": now.idempotency_key,
                "turn": now.turn_id,
                "attempt": now.attempt,
            }


@pytest.fixture
def tools() -> Tools:
    return Tools()


@asynccontextmanager
async def served(host: ToolHost, runtime: Tutelage) -> AsyncIterator[asyncio.Task[None]]:
    serving = asyncio.create_task(host.serve(runtime))
    try:
        yield serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def drained(host: ToolHost, serving: asyncio.Task[None]) -> None:
    host.drain()
    async with asyncio.timeout(WAIT_SECONDS):
        await serving


def outcome(result: CallResult) -> str:
    return str(result.WhichOneof("outcome"))


async def test_the_hello_says_who_it_is_and_what_it_offers(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()

    hello = session.hello
    assert hello.host == "notes"
    assert len(hello.incarnation) == 32
    assert hello.capacity == 10
    assert list(hello.holding) == []
    assert [tool.name for tool in hello.tools] == [
        "note", "wait", "wait_in_thread", "fail", "fail_in_thread", "who",
    ]  # fmt: skip


async def test_each_run_is_another_incarnation(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        first = await double.hosts.session()
    async with served(tools.host, runtime):
        second = await double.hosts.session()

    assert first.hello.incarnation != second.hello.incarnation


async def test_a_call_runs_once_and_knows_which_it_is(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1"), call("c2", "who", key="k2", attempt=3))
        results = await session.results(2)

    assert results["c1"].output_json == '"ok"'
    told = json.loads(results["c2"].output_json)
    assert told == {"call": "c2", "key": "k2", "turn": "t1", "attempt": 3}
    assert tools.runs == ["c1"]


async def test_a_call_that_is_held_is_not_run_again(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    """The same id again, while it runs and after its result was sent, is ignored."""
    async with served(tools.host, runtime):
        session = await double.hosts.session()
        session.call(call("c1", "wait"))
        await tools.began.wait()
        session.call(call("c1", "wait"))
        tools.opened.set()
        await session.results()
        session.call(call("c1", "wait"), call("c2"))
        await session.results()

    assert tools.runs == ["c1", "c2"]


async def test_a_result_is_sent_again_after_each_hello_until_it_is_taken(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    """Scenario 24a, D9: the result is sent again on reconnection; the tool is not."""
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        first.call(call("c1"))
        await first.results()
        first.end(grpc.StatusCode.UNAVAILABLE)

        second = await double.hosts.session()
        again = await second.results()
        second.take("c1")
        second.call(call("c2"))
        await second.results()
        second.end()

        third = await double.hosts.session()
        rest = await third.results()

    assert second.hello.incarnation == first.hello.incarnation
    assert list(second.hello.holding) == ["c1"]
    assert again["c1"].output_json == '"ok"'
    assert list(third.hello.holding) == ["c2"]
    assert list(rest) == ["c2"]
    assert tools.runs == ["c1", "c2"]


@pytest.mark.parametrize("tool", ["wait", "wait_in_thread"])
async def test_a_tool_that_runs_on_while_the_stream_is_broken_is_held(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools, tool: str
) -> None:
    """D4: a host that reconnects settles by itself what would be unfinished."""
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        first.call(call("c1", tool))
        await (tools.began.wait() if tool == "wait" else asyncio.to_thread(tools.thread_began.wait))
        await double.stop()
        tools.opened.set()
        tools.thread_opened.set()
        await double.start()
        second = await double.hosts.session()
        results = await second.results()

    assert list(second.hello.holding) == ["c1"]
    assert results["c1"].output_json == '"waited"'
    assert tools.runs == ["c1"]


async def test_a_call_that_never_arrived_is_taken_under_the_same_id(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    """What `holding` does not name did not run, and is sent again by the same id."""
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        first.end()
        second = await double.hosts.session()
        second.call(call("c1"))
        results = await second.results()

    assert list(second.hello.holding) == []
    assert results["c1"].output_json == '"ok"'


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


async def test_a_drain_finishes_what_is_held_and_closes(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime) as serving:
        session = await double.hosts.session()
        session.call(call("c1", "wait"))
        await tools.began.wait()
        tools.host.drain()
        said = await session.hear()
        session.call(call("c2"))
        refused = await session.results()
        session.take("c2")
        tools.opened.set()
        finished = await session.results()
        assert not serving.done()
        session.take("c1")
        closed = await session.hear()
        session.end()
        async with asyncio.timeout(WAIT_SECONDS):
            await serving

    assert said is not None
    assert said.HasField("draining")
    assert outcome(refused["c2"]) == "not_run"
    assert finished["c1"].output_json == '"waited"'
    assert closed is None
    assert tools.runs == ["c1"]


async def test_a_drain_without_a_stream_reports_what_finished(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    """Its stream is broken as it drains: it offers nothing again, and hands over its results by a call."""
    async with served(tools.host, runtime) as serving:
        session = await double.hosts.session()
        session.call(call("c1"))
        await session.results()
        await double.stop()
        tools.host.drain()
        await double.start()
        async with asyncio.timeout(WAIT_SECONDS):
            await serving
            report = await double.hosts.reports.get()

    assert report.incarnation == session.hello.incarnation
    assert [result.call_id for result in report.results] == ["c1"]
    assert double.hosts.opened.empty()


async def test_a_drain_with_nothing_to_do_ends_also_without_a_runtime(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools
) -> None:
    await double.stop()
    async with served(tools.host, runtime) as serving:
        await asyncio.sleep(0)
        await drained(tools.host, serving)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "NOT_SIGNED_IN"),
        (grpc.StatusCode.PERMISSION_DENIED, "NOT_ADMITTED"),
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"),
    ],
)
async def test_a_host_that_is_refused_says_why(
    double: RuntimeDouble, runtime: Tutelage, tools: Tools, code: grpc.StatusCode, reason: str
) -> None:
    double.hosts.refusal = (code, reason)
    async with served(tools.host, runtime) as serving, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(TutelageError) as caught:
            await serving

    assert caught.value.reason == reason
    assert double.hosts.hellos_refused == 1


async def test_a_host_outlives_its_stream_s_token(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    """R11: a stream ends with its token. A later hello with a newer one is taken."""
    async with served(tools.host, runtime):
        first = await double.hosts.session()
        first.end(grpc.StatusCode.UNAUTHENTICATED, "NOT_SIGNED_IN")
        second = await double.hosts.session()

    assert second.hello.incarnation == first.hello.incarnation


async def test_a_hello_that_was_long_under_way_is_said_again(double: RuntimeDouble, runtime: Tutelage) -> None:
    """`begin_by` counts from the hello: where that took too long, no call could begin in time."""
    readings = iter([0.0, 100.0])
    tools = Tools(clock=lambda: next(readings, 100.0))
    async with served(tools.host, runtime):
        await double.hosts.session()
        second = await double.hosts.session()
        second.call(call("c1"))
        results = await second.results()

    assert outcome(results["c1"]) == "output_json"


async def test_a_stopped_host_leaves_no_call_running(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime) as serving:
        session = await double.hosts.session()
        session.call(call("c1", "wait"))
        await tools.began.wait()
        running = {task.get_name() for task in asyncio.all_tasks()}
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        left = {task.get_name() for task in asyncio.all_tasks()}

    assert "call c1" in running
    assert "call c1" not in left


async def test_one_host_is_served_once_at_a_time(double: RuntimeDouble, runtime: Tutelage, tools: Tools) -> None:
    async with served(tools.host, runtime):
        await double.hosts.session()
        with pytest.raises(RuntimeError):
            await tools.host.serve(runtime)


def test_two_tools_of_one_name_are_refused(tools: Tools) -> None:
    def note() -> str:
        """Another."""
        return ""

    with pytest.raises(ValueError, match="note"):
        tools.host.tool()(note)
