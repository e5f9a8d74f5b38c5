"""Whether what was asked of people, and what they said, is the same in rows and journal (`runtime.md` R3, R5.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime_service.domain import told
from runtime_service.domain.addresses import Address, below, path_of
from runtime_service.domain.approvals import Approval, ApprovalState, Decision
from runtime_service.domain.fingerprints import FingerprintFields, fingerprint
from runtime_service.domain.journal import ApprovalAsked, ApprovalRecorded, Record, ToolDone, ToolStarted
from runtime_service.domain.soundness.found import Kept, Wrong, at_line
from runtime_service.domain.soundness.work import Work

_S = ApprovalState


class Questions:
    """Follows what a turn asks, beside what is kept of it in rows."""

    def __init__(self, kept: Kept, work: Work) -> None:
        self._kept = kept
        self._turn = kept.turn
        self._work = work
        self._rows = {approval.id: approval for approval in kept.approvals}
        # The address of the task that asked, by approval.
        self._asked: dict[str, str] = {}
        self._by_call: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        self._recorded: dict[str, ApprovalState] = {}
        self._started: set[tuple[str, int]] = set()
        self._asked_anew: set[str] = set()

    def see(self, record: Record) -> Iterator[Wrong]:
        """Take the next record in."""
        what, where = record.what, at_line(self._turn, record.line)
        match what:
            case ApprovalAsked():
                yield from self._is_asked(where, record, what)
            case ApprovalRecorded():
                yield from (Wrong(where, wrong, "R5.1") for wrong in self._is_recorded(record, what))
            case ToolStarted():
                self._started.add((record.address, what.invocation))
                yield from (Wrong(where, wrong, "R3.4") for wrong in self._may_start(record.address, what))
            case ToolDone() if record.erase_time is None:
                yield from (Wrong(at, wrong, "R5.1") for at, wrong in self._outcome(record.address, what))
            case _:
                pass

    def end(self) -> Iterator[Wrong]:
        """Hold each row to what the records came to."""
        for approval in self._kept.approvals:
            where = f"approval {approval.id}"
            if approval.id not in self._asked:
                yield Wrong(where, "its turn's journal does not say that it was asked", "R3.1")
                continue
            for wrong, rule in (
                *self._stands(approval),
                *self._is_copied(approval),
                *_answered(approval),
                *self._is_told(approval),
            ):
                yield Wrong(where, wrong, rule)

    # Record by record

    def _is_asked(self, where: str, record: Record, asked: ApprovalAsked) -> Iterator[Wrong]:
        if asked.approval_id in self._asked:
            yield Wrong(where, "it asks the same question twice", "R3.1")
        self._asked[asked.approval_id] = record.address
        self._by_call[(record.address, asked.invocation)].append(asked.approval_id)
        self._asked_anew.add(asked.supersedes)
        if record.erase_time is None and fingerprint(self._covered(record.address, asked)) != asked.fingerprint:
            yield Wrong(where, "the fingerprint is not that of what was asked", "R3.5")
        approval = self._rows.get(asked.approval_id)
        if approval is None:
            yield Wrong(where, f"there is no approval {asked.approval_id}", "R3.1")
            return
        other = [name for name in _ALIKE if getattr(approval, name) != getattr(asked, name)]
        if record.erase_time is None and approval.input_json != asked.input_json:
            other.append("input_json")
        other += self._placed_otherwise(record.address, approval)
        if other:
            yield Wrong(f"approval {approval.id}", f"it is not what was asked: {', '.join(sorted(other))}", "R3.1")

    def _placed_otherwise(self, address: Address, approval: Approval) -> Iterator[str]:
        """Name what of a row does not fit its turn and the task that asked."""
        turn, task = self._turn, self._work.tasks[address]
        at = below(address, approval.tool, approval.invocation)
        expected: dict[str, object] = {
            "turn_id": turn.root_id,
            "conversation_id": turn.conversation_id,
            "agent": turn.agent,
            "work_for": turn.work_for,
            "given_by": turn.given_by,
            "scope": turn.scope,
            "address": at,
            "path": path_of(at),
            "task_id": f"{turn.id}/{address}",
            "step": task.replies,
            "put_to": approval.rule.put_to,
        }
        if task.started is not None and task.block is not None:
            expected |= {
                "agent_version": task.started.agent_version,
                "skill": task.started.skill,
                "skill_version": task.started.skill_version,
                "instruction_set": task.block.instruction_set,
                "block_sha256": task.block.sha256,
            }
        return (name for name, value in expected.items() if getattr(approval, name) != value)

    def _covered(self, address: Address, asked: ApprovalAsked) -> FingerprintFields:
        return FingerprintFields(
            turn_id=self._turn.id,
            address=below(address, asked.tool, asked.invocation),
            tool=asked.tool,
            declaration_hash=asked.declaration_hash,
            input_json=asked.input_json,
            effects=asked.effects,
            rule=asked.rule,
            agent_version=asked.agent_version,
            skill_version=asked.skill_version,
            instruction_set=asked.instruction_set,
            block_sha256=asked.block_sha256,
        )

    def _is_recorded(self, record: Record, recorded: ApprovalRecorded) -> Iterator[str]:
        if self._asked.get(recorded.approval_id) != record.address:
            yield "this was never asked here"
        if self._recorded.get(recorded.approval_id) is recorded.state or recorded.state is _S.PENDING:
            yield "there was nothing to copy"
        self._recorded[recorded.approval_id] = recorded.state
        approval = self._rows.get(recorded.approval_id)
        if approval is None:
            return
        if record.erase_time is None and recorded.answers != approval.answers:
            yield "it is not what people answered"

    def _may_start(self, address: str, started: ToolStarted) -> Iterator[str]:
        """A call that was asked about starts on a yes that was copied, unless the question was taken back."""
        asked = self._by_call.get((address, started.invocation))
        approval = self._rows.get(asked[-1]) if asked else None
        if approval is None or (approval.state is _S.WITHDRAWN and not approval.used):
            return
        if self._recorded.get(approval.id) is not _S.APPROVED or not approval.used:
            yield "it was asked about, and starts without a yes"

    def _outcome(self, address: str, done: ToolDone) -> Iterator[tuple[str, str]]:
        asked = self._by_call.get((address, done.invocation))
        approval = self._rows.get(asked[-1]) if asked else None
        if approval is not None and approval.outcome not in ("", told.outcome(done)):
            yield f"approval {approval.id}", "its outcome is not what came of its call"

    # At the end

    def _stands(self, approval: Approval) -> Iterator[tuple[str, str]]:
        """Hold what is closed, used and open to how far its call came."""
        address = self._asked[approval.id]
        ended = self._work.done(address, approval.invocation) is not None
        last = self._by_call[(address, approval.invocation)][-1] == approval.id
        if ended and last and not approval.closed:
            yield "its call has a result, and it is not closed", "R3.3"
        gone = approval.state is _S.WITHDRAWN or approval.used or approval.id in self._asked_anew
        if approval.closed and not (ended or gone):
            yield "it is closed, and its call has no result", "R3.3"
        began = self._work.tasks.get(approval.address)
        begun = (address, approval.invocation) in self._started or (began is not None and began.started is not None)
        if approval.used and not begun:
            yield "it was used, and its call never started", "R3.6"
        open_still = approval.state in (_S.PENDING, _S.APPROVED, _S.ANSWERED) and not (approval.used or approval.closed)
        if self._turn.state.ended and open_still:
            yield f"its turn has ended, and it is {approval.state.name}", "R3.9"
        if approval.state is _S.PENDING and (approval.closed or approval.used or approval.to_copy):
            yield "it waits, and somebody went on without it", "R3.1"

    def _is_copied(self, approval: Approval) -> Iterator[tuple[str, str]]:
        recorded = self._recorded.get(approval.id)
        if approval.to_copy or recorded is approval.state or approval.state in (_S.PENDING, _S.WITHDRAWN):
            if recorded is not None and approval.state is _S.PENDING:
                yield f"its journal says {recorded.name}, and it is PENDING", "R5.1"
            return
        if not (approval.state is _S.SUPERSEDED and approval.closed):
            said = recorded.name if recorded else "nothing"
            yield f"it is {approval.state.name}, and its journal says {said}", "R5.1"

    def _is_told(self, approval: Approval) -> Iterator[tuple[str, str]]:
        if self._kept.put_to.get(approval.id, frozenset()) != frozenset(approval.put_to):
            yield "the rows that say to whom it is put do not say what it says", "R10"
        due = {"waiting"}
        if approval.state is not _S.PENDING:
            due.add("settled")
        if approval.outcome:
            due.add("outcome")
        told_of = {kind for kind, subject, _ in self._kept.told if subject == approval.id}
        if due - told_of:
            yield f"its feed does not tell that it is {', '.join(sorted(due - told_of))}", "R11"


# What a row and its record say in the same words.
_ALIKE = (
    "invocation", "tool", "fingerprint", "effects", "declaration_hash", "rule", "asked_by_rule", "agent_version",
    "skill_version", "instruction_set", "block_sha256", "expire_time", "supersedes",
)  # fmt: skip


def _answered(approval: Approval) -> Iterator[tuple[str, str]]:
    """Hold an approval's state to its answers: each a person's, as many as it needs (R3.4)."""
    if not all(answer.by.is_person for answer in approval.answers):
        yield "somebody answered who is not a person", "R3.4"
    latest = {answer.by.id: answer for answer in approval.answers}
    yes = [answer for answer in latest.values() if answer.decision is Decision.APPROVE]
    last = approval.answers[-1].decision if approval.answers else Decision.UNSPECIFIED
    match approval.state:
        case _S.APPROVED if len(yes) < approval.approvals_needed:
            yield "it is APPROVED by fewer people than it needs", "R3.4"
        case _S.DENIED if last is not Decision.DENY:
            yield "it is DENIED, and nobody said no", "R3.4"
        case _S.ANSWERED if last is not Decision.ANSWER:
            yield "it is ANSWERED, and nobody gave an answer", "R3.4"
        case _S.PENDING if len(yes) >= approval.approvals_needed or last in (Decision.DENY, Decision.ANSWER):
            yield "it is PENDING, and was answered", "R3.4"
        case _:
            pass
