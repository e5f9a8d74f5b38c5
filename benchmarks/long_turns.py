"""Long turns: what a turn of so many records costs to go on with, to keep and to read.

A turn calls a tool in every step, then asks a person. The service is stopped and started again before the answer comes,
so that whoever goes on has to read it all; the first new step is the tool that was asked about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any

from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from tutelage import CHANGES, tool
from tutelage.runtime.v1 import approvals_pb2, journal_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, NamesRule

from benchmarks.figures import Figures
from benchmarks.stand import Stand, standing
from runtime_service.engine.library_messages import RAW_FORM, ToolNames, messages
from runtime_service.engine.models import Asked, Message, ModelCall, ModelRequest, Replied, ToolResult

RECORDS = (10, 100, 1_000, 2_000)
RECORDS_A_STEP = 3
TRIES = 3
PUBLISH_ASKED = ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=["publish"])))


class Desk:
    """The tools, and when the one that was asked about began."""

    def __init__(self) -> None:
        self.published_at = 0.0
        self.published = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(effects=CHANGES)
        def write(text: str) -> str:
            """Write something down."""
            return f"wrote {text}" * 8

        @tool(effects=CHANGES)
        async def publish() -> str:
            """Publish it."""
            self.published_at = time.perf_counter()
            self.published.set()
            return "published"

        return [write, publish]


async def measure() -> Figures:
    """Measure each size in turn, in one run."""
    desk = Desk()
    figures = Figures("A turn of so many records", RECORDS)
    async with standing(*desk.tools()) as stand:
        for records in RECORDS:
            await _measure(stand, desk, records, figures)
    return figures


async def _measure(stand: Stand, desk: Desk, records: int, figures: Figures) -> None:
    steps = records // RECORDS_A_STEP
    await stand.stop()
    before = stand.bytes_on_disk()
    await stand.start()
    await stand.agent(f"writer{records}", _rules(steps), PUBLISH_ASKED)
    turns = [await _waiting(stand, f"writer{records}") for _ in range(TRIES)]
    journals = [await _journal(stand, turn_id) for turn_id, _ in turns]
    await stand.stop()
    grown = stand.bytes_on_disk() - before
    await stand.start()
    # A process that has just started pays for more than this turn.
    gone_on = [await _go_on(stand, desk, asked) for _, asked in turns][1:]
    early = [_ms_a_step(journal[: len(journal) // 5 + 6]) for journal in journals]
    late = [_ms_a_step(journal[-len(journal) // 5 - 6 :]) for journal in journals]
    figures.add("from the answer to its tool's start, ms", median(gone_on) * 1e3)
    figures.add("a step early in it, ms", median(early))
    figures.add("a step late in it, ms", median(late))
    figures.add("its messages as a provider's library takes them, ms", _ms_to_map(journals[0]))
    figures.add("bytes a record, on disk", grown / sum(map(len, journals)))
    figures.add("to list its records, ms", await _ms(lambda: _journal(stand, turns[0][0])))
    figures.add("to get it, ms", await _ms(lambda: stand.get(turns[0][0])))


def _rules(steps: int) -> Sequence[dict[str, Any]]:
    write = {"tool": "write", "input": {"text": "Something that is worth writing down. " * 2}}
    return [
        {"when": f"step < {steps}", "say": "I write this down first.", "calls": [write]},
        {"when": f"step == {steps}", "calls": [{"tool": "publish", "input": {}}]},
        {"say": "Done."},
    ]


async def _waiting(stand: Stand, agent: str) -> tuple[str, approvals_pb2.Approval]:
    """Have a turn come to its question."""
    turn_id = await stand.turn(await stand.conversation(agent))
    [asked] = (await stand.until(turn_id, "waiting")).waiting.approvals
    return turn_id, asked


async def _go_on(stand: Stand, desk: Desk, asked: approvals_pb2.Approval) -> float:
    """Answer, and return how long it took until the tool began."""
    answer = approvals_pb2.DecideApprovalRequest(
        approval_id=asked.id, decision=approvals_pb2.DECISION_APPROVE, fingerprint=asked.fingerprint
    )
    desk.published.clear()
    began = time.perf_counter()
    await stand.client.approvals.DecideApproval(answer)
    await desk.published.wait()
    return desk.published_at - began


async def _journal(stand: Stand, turn_id: str) -> Sequence[journal_pb2.Record]:
    records: list[journal_pb2.Record] = []
    token = ""
    while True:
        request = turns_pb2.ListRecordsRequest(turn_id=turn_id, page_size=1_000, page_token=token)
        page = await stand.client.turns.ListRecords(request)
        records += page.records
        token = page.next_page_token
        if not token:
            return records


async def _ms(call: Callable[[], Awaitable[object]]) -> float:
    """Return how long a call takes."""
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began)
    return median(took) * 1e3


def _ms_to_map(journal: Sequence[journal_pb2.Record]) -> float:
    """Return how long it takes to make the last request of a turn out of replies in the library's own form."""
    said: list[Message] = [Asked("Go on.")]
    for record in journal:
        if record.HasField("model_replied"):
            reply = record.model_replied
            calls = tuple(ModelCall(call.tool, call.input_json) for call in reply.calls)
            said.append(Replied(reply.text, calls, _in_the_librarys_form(reply.text, calls), RAW_FORM))
        elif record.HasField("tool_done"):
            said.append(ToolResult(0, record.tool_done.tool, record.tool_done.output_json))
    request, names = ModelRequest("anthropic:model", ("A purpose.",), tuple(said)), ToolNames(())
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        messages(request, names)
        took.append(time.perf_counter() - began)
    return median(took) * 1e3


def _in_the_librarys_form(text: str, calls: Sequence[ModelCall]) -> str:
    parts = [ToolCallPart(call.tool, call.input_json, f"call_{place}") for place, call in enumerate(calls)]
    reply = ModelResponse([TextPart(text), *parts], model_name="model", provider_name="anthropic")
    return ModelMessagesTypeAdapter.dump_json([reply]).decode()


def _ms_a_step(journal: Sequence[journal_pb2.Record]) -> float:
    """Return how long one reply came after the other."""
    times = [record.time.ToMicroseconds() for record in journal if record.HasField("model_replied")]
    return (times[-1] - times[0]) / 1e3 / max(1, len(times) - 1)
