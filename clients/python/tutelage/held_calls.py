"""The calls that a tool host has received and may not forget.

Invariants (`runtime.md` R6.6):
- A call is held from when it was read until the runtime names its result in `taken`.
- `begin` is the one way to a function, once for each call, and it looks at the clock and at the attempts
  immediately before. A call that may not begin has `not_run` for its result.
- Of one idempotency key an attempt older than one seen never begins.
"""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from tutelage.runtime.v1.tools_pb2 import CallResult, NotRun, ToolCall

KEYS_REMEMBERED = 10_000
BATCH_BYTES = 3 * 1024 * 1024


def boot_seconds() -> float:
    """Tell the seconds since the machine started, also those that it slept, where a clock counts them."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Stage(enum.Enum):
    """How far a held call has come."""

    WAITS = "waits"
    RUNS = "runs"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class HeldCall:
    """One call that the host has received."""

    call: ToolCall
    begin_until: float
    stage: Stage = Stage.WAITS
    cancelled: bool = False
    result: CallResult | None = None
    task: asyncio.Task[None] | None = None


class HeldCalls:
    """The calls of one incarnation. All but `begin` is for the event loop's thread alone."""

    def __init__(self, offered: Container[str], capacity: int, clock: Callable[[], float]) -> None:
        self._offered = offered
        self._capacity = capacity
        self._clock = clock
        self._calls: dict[str, HeldCall] = {}
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._under_way = 0
        # Between the loop, which receives and cancels, and the threads that begin.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[HeldCall]:
        return iter(self._calls.values())

    @property
    def under_way(self) -> int:
        """How many have no result yet."""
        return self._under_way

    def ids(self) -> list[str]:
        """Return the ids of all that is held: what `holding` says."""
        return list(self._calls)

    def results(self) -> list[CallResult]:
        """Return every result that was not taken yet."""
        return [held.result for held in self._calls.values() if held.result is not None]

    def receive(self, call: ToolCall, hello_sent: float, *, accepting: bool) -> HeldCall | None:
        """Hold a call of the session whose hello was sent then. Returns None for one that is held already.

        One that cannot be taken (not `accepting`, no capacity, unknown tool, too late, too old) has ended.
        """
        if call.call_id in self._calls:
            return None
        begin_by = call.begin_by.ToTimedelta().total_seconds() if call.HasField("begin_by") else float("inf")
        held = self._calls[call.call_id] = HeldCall(call, hello_sent + begin_by)
        room = self._under_way < self._capacity
        self._under_way += 1
        with self._lock:
            self._see_attempt(call)
            taken_up = accepting and room and call.tool in self._offered and self._may_begin(held)
        if not taken_up:
            self.end(held, not_run(held))
        return held

    def begin(self, held: HeldCall) -> bool:
        """Say whether the call's function may be begun, now. From any thread, immediately before it is."""
        with self._lock:
            if held.stage is not Stage.WAITS or not self._may_begin(held):
                return False
            held.stage = Stage.RUNS
            return True

    def cancel(self, call_id: str) -> HeldCall | None:
        """Cancel a held call that has no result, and return it. One that waits ends here, as `not_run`."""
        held = self._calls.get(call_id)
        if held is None:
            return None
        with self._lock:
            waits, runs = held.stage is Stage.WAITS, held.stage is Stage.RUNS
            held.cancelled = waits or runs
            if waits:
                held.stage = Stage.ENDED
        if waits:
            self._keep(held, not_run(held))
        return held if waits or runs else None

    def end(self, held: HeldCall, result: CallResult) -> None:
        """Keep a call's result. Only the first counts."""
        with self._lock:
            ended, held.stage = held.stage is Stage.ENDED, Stage.ENDED
        if not ended:
            self._keep(held, result)

    def forget(self, call_ids: Iterable[str]) -> None:
        """Let go of those whose result the runtime has taken."""
        for call_id in call_ids:
            held = self._calls.get(call_id)
            if held is not None and held.result is not None:
                del self._calls[call_id]

    def _keep(self, held: HeldCall, result: CallResult) -> None:
        held.result = result
        self._under_way -= 1

    def _may_begin(self, held: HeldCall) -> bool:
        newest = self._newest.get(held.call.idempotency_key, 0)
        return self._clock() <= held.begin_until and held.call.attempt >= newest

    def _see_attempt(self, call: ToolCall) -> None:
        key = call.idempotency_key
        self._newest[key] = max(call.attempt, self._newest.get(key, 0))
        self._newest.move_to_end(key)
        if len(self._newest) > KEYS_REMEMBERED:
            self._newest.popitem(last=False)


def not_run(held: HeldCall) -> CallResult:
    """Say of a call that it certainly has not run."""
    return CallResult(call_id=held.call.call_id, not_run=NotRun())


def batches(results: Iterable[CallResult]) -> Iterator[list[CallResult]]:
    """Split results into messages that are small enough to send (`runtime.md` R12)."""
    batch: list[CallResult] = []
    size = 0
    for result in results:
        weight = result.ByteSize()
        if batch and size + weight > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(result)
        size += weight
    if batch:
        yield batch
