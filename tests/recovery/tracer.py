"""What a service or a host crosses on its way, told apart by name, and the crossing at which it dies.

For processes that `forks.py` begins. The product knows nothing of it: it is wrapped around the product's own joints,
the commits (`Transactions.run`), the streams of hosts (`Serve`), what is asked of models and of teaching. Each crossing
is a line of a file, so that it is known whoever dies. A crossing is named by what crosses (a unit's kind and address,
never its id), and numbered among those of its name: the same work crosses the same in every run, however its units
come to share transactions.

Environment: `TRACE_FILE`; `TRACE_AT`, the crossing at which this process is struck; `TRACE_BY`, `kill`, `both` (with
the process whose number stands in `TRACE_OTHER`) or `stop`.
"""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

KILL, BOTH, STOP = "kill", "both", "stop"


class Tracer:
    """Writes down what this process crosses, and strikes it at one crossing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        file = environment.get("TRACE_FILE", os.devnull)
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._at = environment.get("TRACE_AT", "")
        self._by = environment.get("TRACE_BY", KILL)
        self._other = environment.get("TRACE_OTHER", "")
        self._seen: Counter[str] = Counter()

    def cross(self, name: str) -> None:
        """Cross: nothing after it happens where this is the crossing to die at."""
        self._seen[name] += 1
        crossing = name if self._seen[name] == 1 else f"{name} ({self._seen[name]})"
        os.write(self._file, crossing.encode() + b"\n")
        if crossing == self._at:
            self._strike()

    def _strike(self) -> None:
        if self._by == BOTH:
            # The other is another child of who forked this one, and it lives as long as the test does.
            os.kill(int(Path(self._other).read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP if self._by == STOP else signal.SIGKILL)


# The runtime


class _Names:
    """Names what units do. Ids are told by the work that they stand for, as far as this process has seen it given."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._things: dict[str, str] = {}

    def of(self, unit: Any) -> list[str]:
        """Name all that a unit does, and remember what it makes."""
        kind = type(unit).__name__
        return [f"{kind} {what}".rstrip() for what in dict.fromkeys(getattr(self, f"_{kind}", self._other)(unit))]

    def of_call(self, call_id: str) -> str:
        """Name a call by its address."""
        return self._things.get(call_id, "a call of before")

    def of_sent(self, call: Any) -> str:
        """Name a call as it is sent; a read is first seen so."""
        return self._things.setdefault(call.call_id, f"{call.address}*{call.attempt}")

    def know(self, ledger: Any) -> None:
        """Learn which turns there are."""
        for turn in ledger.turns.loaded.values():
            self._turns[turn.id] = turn.agent

    def _other(self, unit: Any) -> Iterable[str]:
        needs = unit.needs
        return [self._things.get(one, "?") for one in (*needs.approvals, *needs.calls)] or [
            self._turns.get(turn_id, "?") for turn_id in needs.turns
        ]

    def _GiveTurn(self, unit: Any) -> Iterable[str]:
        self._turns[unit.turn.id] = unit.turn.agent
        return [unit.turn.agent]

    def _Append(self, unit: Any) -> Iterable[str]:
        return [f"{_words(type(what).__name__)}@{address}" for address, what in unit.records]

    def _AskPeople(self, unit: Any) -> Iterable[str]:
        self._things |= {approval.id: approval.address for approval in unit.approvals}
        return [approval.address for approval in unit.approvals]

    def _StartCall(self, unit: Any) -> Iterable[str]:
        self._things[unit.call.id] = f"{unit.call.address}*{unit.call.attempt}"
        return [self._things[unit.call.id]]

    def _TakeResults(self, unit: Any) -> Iterable[str]:
        return [self.of_call(call_id) for call_id in unit.results]

    def _OpenSession(self, unit: Any) -> Iterable[str]:
        return [""]

    _EndSession = _HandBack = _OpenSession


def _words(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def trace_runtime() -> None:
    """Trace the runtime that this process is about to be."""
    from runtime_service.api.tool_hosts import ToolHostService
    from runtime_service.engine.models import Models
    from runtime_service.store.leases import Leases
    from runtime_service.store.transactions import Transactions
    from runtime_service.teaching_link import TeachingService

    tracer, names = Tracer(os.environ), _Names()
    _trace_commits(Transactions, tracer, names)
    _trace_streams(ToolHostService, tracer, names)
    _trace_asking(Models, "ask", tracer, lambda request, *_: f"{request.model} {_this_step(request)}")
    _trace_asking(TeachingService, "begin_task", tracer, lambda turn, task: task.path)
    _trace_asking(TeachingService, "take_up", tracer, lambda tenant, task_id, number: f"{_address(task_id)} {number}")
    _trace_asking(TeachingService, "standing", tracer, lambda tenant, ids: min(map(_address, ids)))
    for name in ("end_all", "begin"):
        _trace_asking(Leases, name, tracer, lambda *_: "")


def _trace_commits(transactions: Any, tracer: Tracer, names: _Names) -> None:
    committed = transactions.run

    async def run(self: Any, units: Sequence[Any]) -> Any:
        named = [name for unit in units for name in names.of(unit)]
        for name in named:
            tracer.cross(f"before {name}")
        done = await committed(self, units)
        names.know(done.ledger)
        for name in named:
            tracer.cross(f"after {name}")
        return done

    transactions.run = run


def _trace_streams(service: Any, tracer: Tracer, names: _Names) -> None:
    serve = service.Serve

    async def heard(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            for what in _said(request, names):
                tracer.cross(f"heard {what}")
            yield request

    async def traced(self: Any, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for response in serve(self, heard(requests), context):
            for what in _said(response, names):
                tracer.cross(f"before sending {what}")
            yield response
            for what in _said(response, names):
                tracer.cross(f"after sending {what}")

    service.Serve = traced


def _said(message: Any, names: _Names) -> list[str]:
    """Name all that a message of a stream says."""
    match kind := message.WhichOneof("message"):
        case "results":
            about = [names.of_call(result.call_id) for result in message.results.results]
        case "calls":
            about = [names.of_sent(call) for call in message.calls.calls]
        case "taken" | "cancelled":
            about = [names.of_call(call_id) for call_id in getattr(message, kind).call_ids]
        case _:
            about = [""]
    return [f"{kind} {one}".rstrip() for one in about]


def _trace_asking(part: Any, method: str, tracer: Tracer, about: Any) -> None:
    ask = getattr(part, method)

    @functools.wraps(ask)
    async def traced(self: Any, *asked: Any) -> Any:
        name = f"{method} {about(*asked)}".rstrip()
        tracer.cross(f"before {name}")
        answer = await ask(self, *asked)
        tracer.cross(f"after {name}")
        return answer

    setattr(part, method, traced)


def _this_step(request: Any) -> str:
    return f"step {sum(hasattr(message, 'calls') for message in request.messages) + 1}"


def _address(task_id: str) -> str:
    return task_id.partition("/")[2]


# The host


def trace_host() -> Tracer:
    """Trace the host that this process is about to be."""
    from tutelage.held_calls import HeldCalls
    from tutelage.host import _Incarnation

    tracer = Tracer(os.environ)

    def about(call: Any) -> str:
        return f"{call.address}*{call.attempt}"

    receive, begin, end, forget = HeldCalls.receive, HeldCalls.begin, HeldCalls.end, HeldCalls.forget
    hello = _Incarnation._hello

    def traced_receive(self: Any, call: Any, *rest: Any, **more: Any) -> Any:
        tracer.cross(f"before receiving {about(call)}")
        held = receive(self, call, *rest, **more)
        tracer.cross(f"after receiving {about(call)}")
        return held

    def traced_begin(self: Any, held: Any) -> bool:
        tracer.cross(f"before beginning {about(held.call)}")
        return begin(self, held)

    def traced_end(self: Any, held: Any, result: Any) -> None:
        tracer.cross(f"before ending {about(held.call)}")
        end(self, held, result)
        tracer.cross(f"after ending {about(held.call)}")

    def traced_forget(self: Any, call_ids: Iterable[str]) -> None:
        for call_id in call_ids:
            named = about(self._calls[call_id].call) if call_id in self._calls else "what is forgotten"
            tracer.cross(f"before forgetting {named}")
            forget(self, [call_id])
            tracer.cross(f"after forgetting {named}")

    def traced_hello(self: Any) -> Any:
        tracer.cross("before hello")
        return hello(self)

    HeldCalls.receive, HeldCalls.begin, HeldCalls.end, HeldCalls.forget = (  # type: ignore[method-assign]
        traced_receive,
        traced_begin,
        traced_end,
        traced_forget,
    )
    _Incarnation._hello = traced_hello  # type: ignore[method-assign]
    return tracer
