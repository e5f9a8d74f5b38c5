"""A turn's journal: what its records hold, and the chain that proves them.

- Records are only added, numbered by `line` without a gap; line 1 is `TurnGiven` (R5.1, R5.4).
- A record's kind, facts and words are what is stored; `what` is built from them.
- Each record's chain covers all before it: docs/journal.md has the encoding, with vectors. Erasing words
  and salt breaks nothing: their digest stays.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from runtime_service.domain.addresses import Address
from runtime_service.domain.approvals import Answer, ApprovalState
from runtime_service.domain.effects import Effects
from runtime_service.domain.length_prefix import lp
from runtime_service.domain.principals import Principal, Proof
from runtime_service.domain.record_form import Form, Words
from runtime_service.domain.rules import ApprovalRule, SettingInForce, Verdict
from runtime_service.domain.times import rfc3339


class ToolEnd(enum.Enum):
    """How a tool call ended."""

    UNSPECIFIED = "UNSPECIFIED"
    RETURNED = "RETURNED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    ANSWERED = "ANSWERED"
    RESOLVED = "RESOLVED"
    SUPERSEDED = "SUPERSEDED"
    NOT_TO_BE_HAD = "NOT_TO_BE_HAD"


class TurnEnd(enum.Enum):
    """How a turn ended."""

    UNSPECIFIED = "UNSPECIFIED"
    DONE = "DONE"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"


@dataclass(frozen=True, slots=True)
class TurnGiven:
    """What was asked, by whom, for whom, under which settings: what the turn keeps to until it ends."""

    conversation_id: str
    after_turn_id: str
    agent: str
    agent_version: str
    skill: str
    input: Words
    work_for: Principal
    given_by: Principal
    scope: str = ""
    settings: tuple[SettingInForce, ...] = ()
    parent_turn_id: str = ""
    parent_address: str = ""


@dataclass(frozen=True, slots=True)
class WriterStarted:
    """A process took the turn. `why` is one of settled 22."""

    process: str
    why: str


@dataclass(frozen=True, slots=True)
class BlockReceipt:
    """What a block was, without its words."""

    instruction_set: int
    instruction_ids: tuple[str, ...]
    sha256: str
    left_out: int = 0
    render_version: int = 0


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task began. `words` is the runtime's own sentence about numbers, and so a fact."""

    task_id: str
    words: str
    agent: str
    agent_version: str
    skill: str
    skill_version: str
    block: BlockReceipt
    tools_hash: str


@dataclass(frozen=True, slots=True)
class InstructionsTakenUp:
    """The instructions changed while the turn waited, and this task took them up."""

    task_id: str
    number: int
    from_set: int
    block: BlockReceipt


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool that the model calls. `invocation` is the runtime's number: the model's own ids repeat."""

    invocation: int
    tool: str
    input_json: Words


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """The model replied. `raw_json` is the reply as the provider's library keeps it."""

    request_hash: str
    model: str
    text: Words
    calls: tuple[RequestedCall, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    raw_json: Words = ""
    raw_form: str = ""


@dataclass(frozen=True, slots=True)
class DecidedAtOnce:
    """A function was asked about a call, or a grant answered it."""

    invocation: int
    tool: str
    by: str
    verdict: Verdict
    reason: Words = ""


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A person is asked about a call: what was shown, and what the yes covers."""

    approval_id: str
    invocation: int
    tool: str
    input_json: Words
    fingerprint: str
    effects: Effects
    declaration_hash: str
    rule: ApprovalRule
    asked_by_rule: str
    agent_version: str
    skill_version: str
    instruction_set: int
    block_sha256: str
    expire_time: datetime | None = None
    supersedes: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRecorded:
    """What became of an approval, copied from its row."""

    approval_id: str
    state: ApprovalState
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool that changes things is about to run. On disk before the tool is sent anything (R5.2)."""

    call_id: str
    invocation: int
    tool: str
    input_json: Words
    effects: Effects
    attempt: int
    edited_input_json: Words = ""
    host: str = ""
    incarnation: str = ""
    session: int = 0


@dataclass(frozen=True, slots=True)
class ToolDone:
    """A call has its result: what the model is told."""

    call_id: str
    invocation: int
    tool: str
    output_json: Words
    end: ToolEnd
    note: Words = ""


@dataclass(frozen=True, slots=True)
class UnfinishedResolved:
    """A person said what became of an unfinished call: `run_again`, or one of two that is not None."""

    call_id: str
    by: Principal
    run_again: bool = False
    output_json: Words | None = None
    error: Words | None = None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn ended. After FAILED a later writer may go on."""

    end: TurnEnd
    output: Words = ""
    cause: Words = ""
    by: Principal | None = None


@dataclass(frozen=True, slots=True)
class LateResult:
    """A result that settled nothing, kept as evidence."""

    call_id: str
    output_json: Words
    failed: bool = False
    host: str = ""


@dataclass(frozen=True, slots=True)
class ChildTurnStarted:
    """Another turn does this call."""

    invocation: int
    turn_id: str


@dataclass(frozen=True, slots=True)
class OutputDidNotFit:
    """What the model handed back last does not fit its skill's output schema: what it is told of that."""

    told: Words


What = (
    TurnGiven
    | WriterStarted
    | TaskStarted
    | InstructionsTakenUp
    | ModelReplied
    | DecidedAtOnce
    | ApprovalAsked
    | ApprovalRecorded
    | ToolStarted
    | ToolDone
    | UnfinishedResolved
    | TurnEnded
    | LateResult
    | ChildTurnStarted
    | OutputDidNotFit
)

# The kinds by their names in the contract, in its order.
KINDS: Mapping[str, type[What]] = {
    "turn_given": TurnGiven,
    "writer_started": WriterStarted,
    "task_started": TaskStarted,
    "instructions_taken_up": InstructionsTakenUp,
    "model_replied": ModelReplied,
    "decided_at_once": DecidedAtOnce,
    "approval_asked": ApprovalAsked,
    "approval_recorded": ApprovalRecorded,
    "tool_started": ToolStarted,
    "tool_done": ToolDone,
    "unfinished_resolved": UnfinishedResolved,
    "turn_ended": TurnEnded,
    "late_result": LateResult,
    "child_turn_started": ChildTurnStarted,
    "output_did_not_fit": OutputDidNotFit,
}
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}
_FORMS: Mapping[type[What], Form] = {cls: Form(cls) for cls in KINDS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as stored. `facts` and `words` are the texts that the digests, in hex, are taken over.

    `words` and `words_salt` are empty where it has none, or where they were erased: then `erase_time` says
    when.
    """

    line: int
    writer: int
    time: datetime
    address: Address
    what: What
    facts: str
    words: str
    words_salt: bytes
    words_digest: str
    content_digest: str
    chain: str
    erase_time: datetime | None = None


def kind_of(what: What) -> str:
    """Name a record's kind as the contract does: `tool_started`."""
    return _KIND_OF[type(what)]


def facts_and_words(what: What) -> tuple[str, str]:
    """Write a record's two texts. No words: an empty text."""
    form = _FORMS[type(what)]
    return form.facts(what), form.words(what)


def rebuilt(kind: str, facts: str, words: str | None) -> What:
    """Read a record back. `words` of None were erased: their fields are empty.

    Raises `KeyError` for a kind, and for an enum's name, that this release does not know.
    """
    what: What = _FORMS[KINDS[kind]].read(facts, words or "")
    return what


def first_chain(tenant: str, turn_id: str) -> str:
    """Give what the chain of a turn's first record is taken over, in hex."""
    return sha256(b"tutelage.turn.v1\0" + lp(tenant, turn_id)).hexdigest()


def seal(
    previous_chain: str, line: int, writer: int, time: datetime, address: Address, what: What, salt: bytes
) -> Record:
    """Make the record that follows `previous_chain`. `salt`: 16 random bytes, kept where it has words."""
    facts, words = facts_and_words(what)
    if not words:
        salt = b""
    elif len(salt) < 16:
        raise ValueError("a salt has 16 bytes or more")
    words_digest = sha256(salt + words.encode())
    content_digest = _content_digest(facts, words_digest.digest())
    return Record(
        line=line,
        writer=writer,
        time=time,
        address=address,
        what=what,
        facts=facts,
        words=words,
        words_salt=salt,
        words_digest=words_digest.hexdigest(),
        content_digest=content_digest.hex(),
        chain=_chain(previous_chain, line, writer, time, address, kind_of(what), content_digest),
    )


def is_sound(record: Record, previous_chain: str) -> bool:
    """Tell whether a stored record is what was sealed after `previous_chain`.

    Its facts are looked at, and its words where they were not erased.
    """
    return not changed(record, previous_chain)


def changed(record: Record, previous_chain: str | None) -> str:
    """Name what of a stored record is not what was sealed after `previous_chain`; empty where all is.

    Without a previous chain the record is held to its own digests alone.
    """
    if record.erase_time is None:
        if sha256(record.words_salt + record.words.encode()).hexdigest() != record.words_digest:
            return "words"
    elif record.words or record.words_salt:
        return "words"
    content_digest = _content_digest(record.facts, _bytes(record.words_digest))
    if content_digest.hex() != record.content_digest:
        return "facts"
    head = (record.line, record.writer, record.time, record.address, kind_of(record.what))
    if previous_chain is not None and _chain(previous_chain, *head, content_digest) != record.chain:
        return "chain"
    return ""


def _bytes(digest: str) -> bytes:
    """Read a stored digest. What is none becomes no digest, which fits nothing."""
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""


def _content_digest(facts: str, words_digest: bytes) -> bytes:
    return sha256(b"tutelage.content.v1\0" + lp(facts) + words_digest).digest()


def _chain(before: str, line: int, writer: int, time: datetime, address: str, kind: str, content_digest: bytes) -> str:
    head = lp(line, writer, rfc3339(time), address, kind)
    return sha256(b"tutelage.record.v1\0" + _bytes(before) + head + content_digest).hexdigest()
