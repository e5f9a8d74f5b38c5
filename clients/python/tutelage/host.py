"""A tool host: offers Python functions to a runtime and runs them when they are called.

    host = ToolHost("notes", [read_note, write_note])
    async with connect(address, token) as runtime:
        await host.serve(runtime)

`serve` is one incarnation: one random name, kept across every reconnection (`runtime.md` R6.6). While its
stream is broken the tools run on, and what they returned is kept until the runtime has it on disk. So a
network fault runs nothing twice and loses no result; only a process that dies in the middle leaves a call of
which nobody knows whether it ran.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import grpc

from tutelage.channel import FIRST_PAUSE_SECONDS, pause_before
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.held_calls import HeldCall, HeldCalls, batches, boot_seconds, not_run
from tutelage.runtime.v1.effects_pb2 import EFFECTS_UNSPECIFIED, Effects
from tutelage.runtime.v1.tools_pb2 import (
    CallResult,
    CallResults,
    HostDraining,
    HostHello,
    HostWelcome,
    ReportResultsRequest,
    ServeRequest,
    ServeResponse,
    ToolCall,
)
from tutelage.tools import Call, Function, Tool, error_text

log = logging.getLogger("tutelage.host")

CAPACITY = 100
LONGEST_PAUSE_SECONDS = 5.0
CLOSE_SECONDS = 5.0
# Such an answer to a hello will be the same the next time.
REFUSALS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)


class ToolHost:
    """Tools under one name.

    `capacity` is how many calls it takes at a time; plain functions run in as many threads.
    """

    def __init__(
        self,
        name: str,
        tools: Iterable[Tool] = (),
        *,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.name = name
        self.tools: dict[str, Tool] = {}
        self.capacity = capacity
        self.clock = clock
        self._incarnation: _Incarnation | None = None
        for each in tools:
            self._offer(each)

    def tool(
        self, *, effects: Effects.ValueType = EFFECTS_UNSPECIFIED, timeout: float | None = None
    ) -> Callable[[Function], Tool]:
        """Make a function a tool of this host: `@host.tool(effects=READS)`. Only before `serve`."""
        return lambda function: self._offer(Tool(function, effects=effects, timeout=timeout))

    async def serve(self, runtime: Tutelage) -> None:
        """Offer the tools until `drain` has been asked for and is done, or the task is cancelled.

        Reconnects by itself. Raises TutelageError where the runtime refuses the host: its token, its role,
        its tools. A plain function that runs when the task is cancelled runs to its end; its result is lost.
        """
        if self._incarnation is not None:
            raise RuntimeError("this host is being served already")
        self._incarnation = _Incarnation(self, runtime)
        try:
            await self._incarnation.run()
        finally:
            self._incarnation = None

    def drain(self) -> None:
        """Take no more calls, finish what is held, and let `serve` return.

        To be called in the loop's thread, as its signal handlers are.
        """
        if self._incarnation is not None:
            self._incarnation.drain()

    def _offer(self, tool: Tool) -> Tool:
        if tool.name in self.tools:
            raise ValueError(f"two tools are named {tool.name}")
        self.tools[tool.name] = tool
        return tool


class _Session:
    """One stream, from its hello on."""

    def __init__(self) -> None:
        self.hello_sent = 0.0
        self.welcomed = False
        self.closed = False
        self.unsent: deque[CallResult] = deque()
        self.news = asyncio.Event()

    def close(self) -> None:
        self.closed = True
        self.news.set()


class _Incarnation:
    """One run of a host, over as many sessions as it takes."""

    def __init__(self, host: ToolHost, runtime: Tutelage) -> None:
        self._host = host
        self._runtime = runtime
        self._name = uuid.uuid4().hex
        self._held = HeldCalls(host.tools, host.capacity, host.clock)
        self._threads = ThreadPoolExecutor(host.capacity, thread_name_prefix=f"tutelage-{host.name}")
        self._tasks: asyncio.TaskGroup
        self._session = _Session()
        self._draining = False
        self._finished = asyncio.Event()
        self._longest_pause = LONGEST_PAUSE_SECONDS

    async def run(self) -> None:
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    await self._sessions()
                except Exception as error:  # a task group would raise it as a group of one
                    failure = error
                    self._stop_all()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if failure is not None:
            raise failure

    def drain(self) -> None:
        self._draining = True
        self._look()

    # Sessions, one after the other

    async def _sessions(self) -> None:
        silent = 0
        while not self._finished.is_set():
            session = self._session = _Session()
            try:
                if self._draining and not self._held.under_way:
                    await self._report()
                elif await self._reachable():
                    await self._serve(session)
            except TutelageError as error:
                log.info("host.disconnected host=%s why=%s", self._host.name, error.message)
                # One that was welcomed may have outlived its token; the next hello will tell.
                if error.code in REFUSALS and not session.welcomed:
                    raise
            silent = 0 if session.welcomed else silent + 1
            await self._unless_finished(pause_before(silent, self._longest_pause))

    async def _reachable(self) -> bool:
        """Wait until a hello would be sent at once. False: there is nothing left to do."""
        ready = asyncio.ensure_future(self._runtime.ready())
        finished = asyncio.ensure_future(self._finished.wait())
        try:
            await asyncio.wait((ready, finished), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
        finally:
            ready.cancel()
            finished.cancel()
            await asyncio.gather(ready, finished, return_exceptions=True)
        return not self._finished.is_set()

    async def _serve(self, session: _Session) -> None:
        """Serve over one stream until it ends."""
        closing = asyncio.timeout(None)
        stream = self._runtime.tools.Serve(self._say(session, closing))
        try:
            async with closing:
                async for response in stream:
                    if not self._hear(session, response):
                        break
        except TimeoutError:
            log.info("host.closed_by_itself host=%s", self._host.name)
        finally:
            session.close()
            stream.cancel()

    async def _report(self) -> None:
        """Hand over the last results without a stream: one that drains offers nothing again."""
        for batch in batches(self._held.results()):
            request = ReportResultsRequest(incarnation=self._name, results=batch)
            await self._runtime.tools.ReportResults(request)
            # Those that were not taken had been settled before.
            self._held.forget(result.call_id for result in batch)
        self._look()

    async def _unless_finished(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        except TimeoutError:
            return

    # What is said

    async def _say(self, session: _Session, closing: asyncio.Timeout) -> AsyncIterator[ServeRequest]:
        # Nothing is read between this and the hello, so that `holding` leaves out what never arrived.
        session.hello_sent = self._host.clock()
        session.unsent = deque(self._held.results())
        yield ServeRequest(hello=self._hello())
        draining_said = False
        while not session.closed:
            session.news.clear()
            if self._draining and not draining_said:
                draining_said = True
                yield ServeRequest(draining=HostDraining())
            results = [session.unsent.popleft() for _ in range(len(session.unsent))]
            for batch in batches(results):
                yield ServeRequest(results=CallResults(results=batch))
            if self._finished.is_set() and not session.closed:
                closing.reschedule(asyncio.get_running_loop().time() + CLOSE_SECONDS)
                return
            await session.news.wait()

    def _hello(self) -> HostHello:
        return HostHello(
            host=self._host.name,
            incarnation=self._name,
            tools=[tool.declaration() for tool in self._host.tools.values()],
            capacity=self._host.capacity,
            holding=self._held.ids(),
        )

    # What is heard

    def _hear(self, session: _Session, response: ServeResponse) -> bool:
        """Act on one message. False: this session is of no use."""
        match response.WhichOneof("message"):
            case "welcome":
                return self._welcome(session, response.welcome)
            case "calls":
                for call in response.calls.calls:
                    self._receive(session, call)
            case "cancelled":
                for call_id in response.cancelled.call_ids:
                    self._cancel(call_id)
            case "taken":
                self._held.forget(response.taken.call_ids)
        self._look()
        return True

    def _welcome(self, session: _Session, welcome: HostWelcome) -> bool:
        reconnect_within = welcome.reconnect_within.ToTimedelta().total_seconds()
        session.welcomed = True
        self._longest_pause = max(FIRST_PAUSE_SECONDS, min(LONGEST_PAUSE_SECONDS, reconnect_within / 8))
        log.info("host.connected host=%s replica=%s session=%d", self._host.name, welcome.replica, welcome.session)
        # `begin_by` counts from our hello. One that was long under way leaves too little time in each call.
        return self._host.clock() - session.hello_sent <= reconnect_within / 4

    def _receive(self, session: _Session, call: ToolCall) -> None:
        held = self._held.receive(call, session.hello_sent, accepting=not self._draining)
        if held is None:
            return
        if held.result is not None:
            self._tell(held.result)
        else:
            held.task = self._tasks.create_task(self._run(held), name=f"call {call.call_id}")

    def _cancel(self, call_id: str) -> None:
        held = self._held.cancel(call_id)
        if held is None:
            return
        if held.result is not None:
            self._tell(held.result)
        elif held.task is not None and self._host.tools[held.call.tool].is_async:
            held.task.cancel()

    # What is run

    async def _run(self, held: HeldCall) -> None:
        tool = self._host.tools[held.call.tool]
        run = self._run_async if tool.is_async else self._run_in_thread
        result = await run(held, tool)
        self._held.end(held, result)
        if held.result is result:
            self._tell(result)

    async def _run_in_thread(self, held: HeldCall, tool: Tool) -> CallResult:
        def work() -> CallResult:
            try:
                arguments = tool.arguments(held.call.input_json)
                if not self._held.begin(held):
                    return not_run(held)
                return _returned(held, tool.run(_call_of(held), arguments))
            except BaseException as error:  # whatever it raises, in this thread it ends here
                return _failed(held, error)

        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)

    async def _run_async(self, held: HeldCall, tool: Tool) -> CallResult:
        try:
            arguments = tool.arguments(held.call.input_json)
            if not self._held.begin(held):
                return not_run(held)
            return _returned(held, await tool.run_async(_call_of(held), arguments))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() and not held.cancelled:
                raise  # the whole host stops
            return _failed(held, error)
        except (Exception, SystemExit) as error:
            return _failed(held, error)

    def _tell(self, result: CallResult) -> None:
        self._session.unsent.append(result)
        self._look()

    def _look(self) -> None:
        """Wake whoever waits for a change."""
        if self._draining and not self._held:
            self._finished.set()
        self._session.news.set()

    def _stop_all(self) -> None:
        for held in self._held:
            if held.task is not None:
                held.task.cancel()


def _call_of(held: HeldCall) -> Call:
    call = held.call
    return Call(call.call_id, call.idempotency_key, call.turn_id, call.address, call.attempt)


def _returned(held: HeldCall, output_json: str) -> CallResult:
    return CallResult(call_id=held.call.call_id, output_json=output_json)


def _failed(held: HeldCall, error: BaseException) -> CallResult:
    if held.cancelled and isinstance(error, asyncio.CancelledError):
        return CallResult(call_id=held.call.call_id, error="The call was cancelled while it ran.")
    log.warning("tool.failed tool=%s call_id=%s", held.call.tool, held.call.call_id, exc_info=error)
    return CallResult(call_id=held.call.call_id, error=error_text(error))
