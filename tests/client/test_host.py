"""The tool host's side of `Serve` (R6.6), against a real server that speaks the contract as it is told to."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from tutelage.client import Tutelage
from tutelage.errors import TutelageError

from tests.client.hosted import Tools, drained, outcome, served
from tests.client.runtime_double import WAIT_SECONDS, RuntimeDouble, call


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
