"""The runtime's tables. Every row carries its tenant; a row's columns are the fields of its domain value.

`made` is the number in which rows of a kind were made: lists go by it, never by time (settled 17). Names are those of
`docs/words.md`.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    LargeBinary,
    MetaData,
    Table,
)

from runtime_service.domain.agents import AgentSpec, Shown
from runtime_service.domain.approvals import Answer, ApprovalState
from runtime_service.domain.calls import Resolution, Result
from runtime_service.domain.effects import Declaration, Effects
from runtime_service.domain.hosts import Offer
from runtime_service.domain.principals import Principal
from runtime_service.domain.rules import ApprovalRule, SettingInForce
from runtime_service.domain.turns import Attended, TurnState, Usage
from runtime_service.store.columns import Value, Values
from service_kit.columns import NUMBER, TEXT, WORDS, Named, UtcDateTime
from service_kit.feeds import feed_table
from service_kit.idempotency import requests_table

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)


def _text(name: str, *, unique: bool | None = None) -> Column[str]:
    return Column(name, TEXT, nullable=False, unique=unique)


def _number(name: str) -> Column[int]:
    return Column(name, NUMBER, nullable=False)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, default=False)


database_facts = Table(
    "database_facts",
    metadata,
    Column("name", TEXT, primary_key=True),
    _text("value"),
)

agents = Table(
    "agents",
    metadata,
    Column("made", NUMBER, primary_key=True, autoincrement=True),
    _text("tenant"),
    _text("name"),
    _text("version"),
    Column("spec", Value(AgentSpec), nullable=False),
    Column("create_time", UtcDateTime, nullable=False),
    # A version that was registered before and is registered again is the newest again.
    _number("registered"),
    Index(None, "tenant", "name", "version", unique=True),
    sqlite_autoincrement=True,
)

declarations = Table(
    "declarations",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("hash", TEXT, primary_key=True),
    Column("declaration", Value(Declaration), nullable=False),
    # The newest declaration of a name holds for new tasks (R1.4).
    Column("declare_time", UtcDateTime, nullable=False),
)

tool_lists = Table(
    "tool_lists",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("hash", TEXT, primary_key=True),
    Column("tools", Values(Shown), nullable=False),
)

conversations = Table(
    "conversations",
    metadata,
    Column("made", NUMBER, primary_key=True, autoincrement=True),
    _text("id"),
    _text("tenant"),
    _text("agent"),
    Column("approve", Value(SettingInForce)),
    Column("opened_by", Value(Principal), nullable=False),
    _text("opened_by_id"),
    Column("create_time", UtcDateTime, nullable=False),
    _number("turns"),
    _text("newest_done"),
    Index(None, "tenant", "id", unique=True),
    sqlite_autoincrement=True,
)

turns = Table(
    "turns",
    metadata,
    Column("made", NUMBER, primary_key=True, autoincrement=True),
    _text("id", unique=True),
    _text("tenant"),
    _text("root_id"),
    _text("conversation_id"),
    _number("number"),
    _text("agent"),
    _text("agent_version"),
    _text("skill"),
    Column("input", WORDS, nullable=False),
    Column("work_for", Value(Principal), nullable=False),
    Column("given_by", Value(Principal), nullable=False),
    # Whose it is, for lists of what one account may see.
    _text("work_for_id"),
    _text("given_by_id"),
    _text("scope"),
    Column("settings", Values(SettingInForce), nullable=False),
    Column("state", Named(TurnState), nullable=False),
    Column("create_time", UtcDateTime, nullable=False),
    Column("update_time", UtcDateTime, nullable=False),
    _text("after_turn_id"),
    _text("parent_turn_id"),
    _text("parent_address"),
    Column("attended", Named(Attended), nullable=False),
    _text("needed_approval"),
    Column("output", WORDS, nullable=False),
    Column("cause", WORDS, nullable=False),
    _text("ready_because"),
    _number("writer"),
    _text("process"),
    _number("line"),
    _text("chain"),
    Column("awaits_tools", Values(str), nullable=False),
    _number("tries"),
    Column("retry_time", UtcDateTime),
    Column("usage", Value(Usage), nullable=False),
    Index(None, "state", "made"),
    Index(None, "tenant", "made"),
    Index(None, "tenant", "conversation_id", "made"),
    # A conversation's open turns: without it each start looks at all that waits anywhere.
    Index(None, "tenant", "conversation_id", "state"),
    Index(None, "tenant", "state", "made"),
    Index(None, "tenant", "work_for_id", "made"),
    Index(None, "tenant", "given_by_id", "made"),
    sqlite_autoincrement=True,
)

# Rows this large fill pages one behind the other only with row ids of their own: by their key, two thirds stay empty.
records = Table(
    "records",
    metadata,
    Column("turn_id", TEXT, primary_key=True),
    Column("line", NUMBER, primary_key=True),
    _text("tenant"),
    _number("writer"),
    Column("time", UtcDateTime, nullable=False),
    _text("address"),
    _text("kind"),
    # Facts and words stand apart, so that words can go and facts stay proven (R5.4).
    Column("facts", WORDS, nullable=False),
    Column("words", WORDS, nullable=False),
    Column("words_salt", LargeBinary, nullable=False),
    _text("words_digest"),
    _text("content_digest"),
    _text("chain"),
    Column("erase_time", UtcDateTime),
)

approvals = Table(
    "approvals",
    metadata,
    Column("seq", NUMBER, primary_key=True, autoincrement=True),
    _text("id", unique=True),
    _text("tenant"),
    _text("turn_id"),
    _text("asking_turn_id"),
    _text("conversation_id"),
    _text("agent"),
    _text("path"),
    _number("invocation"),
    _text("address"),
    _text("tool"),
    Column("tool_description", WORDS, nullable=False),
    Column("input_json", WORDS, nullable=False),
    Column("schema_json", WORDS, nullable=False),
    Column("effects", Named(Effects), nullable=False),
    _text("fingerprint"),
    _number("instruction_set"),
    Column("said", WORDS, nullable=False),
    Column("work_for", Value(Principal), nullable=False),
    Column("given_by", Value(Principal), nullable=False),
    _text("scope"),
    Column("put_to", Values(str), nullable=False),
    _number("approvals_needed"),
    Column("state", Named(ApprovalState), nullable=False),
    Column("ask_time", UtcDateTime, nullable=False),
    Column("expire_time", UtcDateTime),
    Column("answers", Values(Answer), nullable=False),
    _text("supersedes"),
    _text("asked_by_rule"),
    Column("outcome", WORDS, nullable=False),
    Column("rule", Value(ApprovalRule), nullable=False),
    _text("declaration_hash"),
    _text("agent_version"),
    _text("skill"),
    _text("skill_version"),
    _text("block_sha256"),
    _text("task_id"),
    _number("step"),
    _flag("to_copy"),
    _flag("used"),
    _flag("closed"),
    Index(None, "tenant", "state", "seq"),
    Index(None, "turn_id", "seq"),
    Index(None, "asking_turn_id", "closed"),
    Index(None, "state", "expire_time"),
    sqlite_autoincrement=True,
)

# To whom approvals are put, one row each: what one account may see and answer is found by it.
put_to = Table(
    "put_to",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("who", TEXT, primary_key=True),
    Column("approval_id", TEXT, primary_key=True),
    _text("turn_id"),
    Index(None, "turn_id"),
    Index(None, "approval_id"),
    sqlite_with_rowid=False,
)

calls = Table(
    "calls",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("tenant"),
    _text("turn_id"),
    _text("address"),
    _number("invocation"),
    _text("tool"),
    Column("input_json", WORDS, nullable=False),
    _number("attempt"),
    _text("host"),
    _text("incarnation"),
    _number("session"),
    Column("timeout_seconds", Float, nullable=False),
    Column("start_time", UtcDateTime, nullable=False),
    Column("deadline", UtcDateTime, nullable=False),
    _text("approval_id"),
    _flag("unfinished"),
    Column("result", Value(Result)),
    Column("resolution", Value(Resolution)),
    _flag("late"),
    _flag("result_copied"),
    _flag("resolution_copied"),
    # Derived, so that what a writer or a host has yet to deal with is found by an index.
    _flag("open"),
    _flag("to_copy"),
    Index(None, "turn_id", "open"),
    Index(None, "turn_id", "to_copy"),
    Index(None, "incarnation", "open"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("incarnation", TEXT, primary_key=True),
    _text("tenant"),
    _text("account"),
    _text("host"),
    _number("number"),
    _text("process"),
    Column("start_time", UtcDateTime, nullable=False),
    Column("end_time", UtcDateTime),
    Column("offers", Values(Offer), server_default="[]", nullable=False),
    Index(None, "process"),
)

# What delegates' calls returned, by the line that says so: words, and gone with those of their turn (R9).
delegate_calls = Table(
    "delegate_calls",
    metadata,
    Column("turn_id", TEXT, primary_key=True),
    Column("line", NUMBER, primary_key=True),
    _text("tenant"),
    _text("delegate"),
    Column("input", WORDS, nullable=False),
    Column("output", WORDS, nullable=False),
)

# Calls that only look, on their way to hosts that are connected to another replica.
reads = Table(
    "reads",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("tenant"),
    _text("process"),
    _text("incarnation"),
    _number("session"),
    _text("tool"),
    Column("input_json", WORDS, nullable=False),
    _text("idempotency_key"),
    _text("turn_id"),
    _text("address"),
    _number("attempt"),
    Column("timeout_seconds", Float, nullable=False),
    Column("ask_time", UtcDateTime, nullable=False),
    Column("result", Value(Result)),
    Index(None, "incarnation"),
    Index(None, "ask_time"),
)

# Processes and until when what they hold is theirs (R6.1, R6.6).
leases = Table(
    "leases",
    metadata,
    Column("process", TEXT, primary_key=True),
    Column("until", UtcDateTime, nullable=False),
)

requests = requests_table(metadata)
approval_feed = feed_table(metadata, "approval_feed")
turn_feed = feed_table(metadata, "turn_feed")
FEEDS = {"approvals": approval_feed, "turns": turn_feed}
