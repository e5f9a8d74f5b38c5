"""A runtime's database with something of everything in it, made through the API alone, and ways to damage a copy."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, Skill, ToolUse
from tutelage.runtime.v1.approvals_pb2 import DECISION_ANSWER, DECISION_DENY, DecideApprovalRequest
from tutelage.runtime.v1.turns_pb2 import IF_BUSY_QUEUE, CallAgentRequest, Resolution, RunAgain, StartTurnRequest, Work

from runtime_service.domain.addresses import Address
from runtime_service.domain.journal import first_chain, rebuilt, seal
from tests.recovery.hand_host import HandHost, changes, reads, returned
from tests.recovery.house import NOTHING, House, Rules, house

DONE = {"say": "Done."}
ONE_WRITE: Rules = [{"when": "step == 0", "calls": [{"tool": "write"}]}, {"say": "Done."}]
HEAD: Rules = [
    {"when": "step == 0", "calls": [{"tool": "look"}, {"tool": "hand", "input": {"input": "go"}}, {"tool": "write"}]},
    {"say": "Done."},
]


@dataclass(frozen=True)
class Kept:
    """Where it is, and the ids of what is in it by the names that tests call them."""

    folder: Path
    names: Mapping[str, str]

    def damaged(self, into: Path, statements: str, forged: str = "") -> Path:
        """Copy it and run statements on the copy, each of which must change something; `:name` stands for an id.

        The journal of the turn that is forged is sealed anew.
        """
        shutil.copy(self.folder / "runtime.db", into / "runtime.db")
        with closing(sqlite3.connect(into / "runtime.db", isolation_level=None)) as database:
            # A copy that is lost with the machine is no loss.
            database.execute("PRAGMA synchronous = OFF")
            for one in statements.split(";"):
                assert database.execute(one, self.names).rowcount > 0, one
            if forged:
                reseal(database, self.names[forged])
        return into

    def named(self, found: str) -> str:
        """Return a finding with names where ids stand, and without what differs from time to time."""
        for name, known in self.names.items():
            found = found.replace(known, f":{name}")
        # What goes on side by side is recorded in any order.
        found = re.sub(r"turn :(done|again), line \d+", r"turn :\1, line N", found)
        return re.sub(r"\b[0-9a-f]{32,64}\b", "*", found)


async def kept(folder: Path) -> Kept:
    """Run a service on the folder until it has something of everything."""
    async with house(folder) as here, HandHost(here, changes("write"), reads("look")) as host:
        await host.connect()
        await here.agent("writer", ONE_WRITE, ["write"])
        await here.agent("hand", ONE_WRITE, ["write"])
        await here.agent("head", HEAD, ["look", "write"], below=["hand"])
        names = await _approved(here, host) | await _answered(here) | await _waiting(here) | await _plain(here)
        names |= await _remembered(here)
        names |= await _run_again(here, host) | await _unfinished(here, host)
        names["incarnation"] = host.incarnation
        for name, (approval,) in {
            name: here.sql("SELECT id FROM approvals WHERE asking_turn_id = ?", names[turn])[0]
            for name, turn in (("pending", "waiting"), ("said_no", "denied"), ("said_it", "answered"))
        }.items():
            names[name] = str(approval)
    return Kept(folder, names)


async def _approved(here: House, host: HandHost) -> dict[str, str]:
    """A done turn: an agent below, a read, and two calls that were approved."""
    conversation = await here.conversation("head")
    turn = await here.start(conversation, request_id="the-first")
    await host.say(returned(await host.stream.call()))
    asked = {approval.address: approval for approval in await here.asked(turn, 1)}
    ids: dict[str, str] = {}
    while len(ids) < 3:
        for approval in asked.values():
            if approval.id not in ids.values():
                ids[approval.path.replace("/", "_")] = approval.id
                await here.decide(approval)
                if approval.tool == "write":
                    await host.say(returned(await host.stream.call()))
        asked = {one.address: one for one in (await here.turn(turn)).waiting}
        await asyncio.sleep(0.01)
    await here.comes_to(turn, "DONE")
    [[call]] = here.sql("SELECT id FROM calls WHERE turn_id = ? AND address = 'head/write#3'", turn)
    return {"done": turn, "talk": conversation, "yes": ids["head_write"], "call": str(call)}


async def _answered(here: House) -> dict[str, str]:
    """A turn that was told no, and one that was given an answer in the tool's stead."""
    denied, answered = await here.begin("writer"), await here.begin("writer")
    [no], [instead] = await here.asked(denied), await here.asked(answered)
    await here.decide(no, DECISION_DENY)
    await here.ann.approvals.DecideApproval(
        DecideApprovalRequest(
            approval_id=instead.id, decision=DECISION_ANSWER, fingerprint=instead.fingerprint, answer_json='"as if"'
        )
    )
    await here.comes_to(denied, "DONE")
    await here.comes_to(answered, "DONE")
    return {"denied": denied, "answered": answered}


async def _waiting(here: House) -> dict[str, str]:
    """A turn that waits for a person, and one that queues behind it."""
    conversation = await here.conversation("writer")
    waiting = await here.start(conversation)
    await here.asked(waiting)
    await here.comes_to(waiting, "WAITING")
    behind = StartTurnRequest(conversation_id=conversation, work=Work(input="go"), if_busy=IF_BUSY_QUEUE)
    queued = (await here.ann.turns.StartTurn(behind)).turn.id
    return {"waiting": waiting, "queued": queued, "busy": conversation}


async def _plain(here: House) -> dict[str, str]:
    """A plain call that failed for want of somebody to ask."""
    try:
        await here.ann.turns.CallAgent(CallAgentRequest(agent="writer", work=Work(input="go")))
    except Exception as problem:
        assert "writer/write#1" in str(problem)  # noqa: PT017 — how it fails is another test's
    [[turn]] = here.sql("SELECT id FROM turns WHERE conversation_id = ''")
    return {"failed": str(turn)}


async def _remembered(here: House) -> dict[str, str]:
    """A turn with a delegate, whose first answer did not fit its schema."""
    note = Skill(name="note", output_schema_json='{"type":"object"}')
    await here.agent("clerk", [{"when": "step == 0", "say": "Noted."}, {"say": '{"noted":1}'}], skills=[note])
    here.script("boss", [{"when": "step == 0", "calls": [{"tool": "clerk.note", "input": {"input": "this"}}]}, DONE])
    uses = [ToolUse(delegate="clerk")]
    boss = AgentSpec(name="boss", hosted=HostedLoop(model="scripted:boss"), tools=uses)
    await here.ann.agents.PutAgent(PutAgentRequest(spec=boss))
    turn = await here.begin("boss")
    await here.comes_to(turn, "DONE")
    return {"remembered": turn}


async def _run_again(here: House, host: HandHost) -> dict[str, str]:
    """A turn with an attempt that a person had run again, and whose first result came late."""
    turn = await here.begin("writer", NOTHING)
    first = await host.stream.call()
    host.stream.break_()
    await here.unfinished(turn)
    await here.resume(turn, Resolution(call_id=first.call_id, run_again=RunAgain()))
    await host.connect(holding=[first.call_id])
    second = await host.stream.call()
    await host.say(returned(first, '"late"'), returned(second))
    await here.comes_to(turn, "DONE")
    await here.recorded(turn, "late_result")
    return {"again": turn, "attempt1": first.call_id, "attempt2": second.call_id}


async def _unfinished(here: House, host: HandHost) -> dict[str, str]:
    """A turn that stopped with a call that may have run, and one that was abandoned so."""
    turn, other = await here.begin("writer", NOTHING), await here.begin("writer", NOTHING)
    calls = {call.turn_id: call.call_id for call in [await host.stream.call(), await host.stream.call()]}
    host.stream.break_()
    await here.unfinished(turn)
    await here.comes_to(turn, "INTERRUPTED")
    await here.comes_to(other, "INTERRUPTED")
    await here.abandon(other)
    return {"stopped": turn, "open": calls[turn], "abandoned": other, "left": calls[other]}


def reseal(database: sqlite3.Connection, turn: str) -> None:
    """Seal a turn's records anew, as they stand now: whoever forges a journal can do so too."""
    [(tenant,)] = database.execute("SELECT tenant FROM turns WHERE id = ?", (turn,)).fetchall()
    chain, at = first_chain(tenant, turn), 0
    rows = database.execute(
        "SELECT line, writer, time, address, kind, facts, words FROM records WHERE turn_id = ? ORDER BY line", (turn,)
    ).fetchall()
    database.execute("UPDATE records SET line = -line WHERE turn_id = ?", (turn,))
    for at, (line, writer, time, address, kind, facts, words) in enumerate(rows, 1):
        moment = datetime.fromisoformat(time).replace(tzinfo=UTC)
        sealed = seal(chain, at, writer, moment, Address(address), rebuilt(kind, facts, words), salt=bytes(16))
        chain = sealed.chain
        database.execute(
            "UPDATE records SET line = ?, facts = ?, words_salt = ?, words_digest = ?, content_digest = ?, chain = ?"
            " WHERE turn_id = ? AND line = ?",
            (at, sealed.facts, sealed.words_salt, sealed.words_digest, sealed.content_digest, chain, turn, -line),
        )
    database.execute("UPDATE turns SET line = ?, chain = ? WHERE id = ?", (at, chain, turn))
