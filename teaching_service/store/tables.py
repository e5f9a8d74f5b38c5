"""The teaching service's tables. Every row carries its tenant.

`made` is the number in which rows of a kind were made: lists go by it, never by time (settled 17). Names are those of
`docs/words.md`.

The database keeps two rules by itself, whoever writes to it: a set is made by a signed-in person who speaks for
themselves, and is only ever added; an instruction is active only where a set says that such a person activated it
(T2.2). The migration has the second one's triggers.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, MetaData, Table

from service_kit.columns import NUMBER, TEXT, WORDS, Named, UtcDateTime
from service_kit.feeds import feed_table
from service_kit.idempotency import requests_table
from teaching_service.domain.corrections import Severity
from teaching_service.domain.instructions import InstructionState
from teaching_service.domain.principals import Principal, Proof
from teaching_service.domain.sets import InstructionChange
from teaching_service.store.columns import Value

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _text(name: str) -> Column[str]:
    return Column(name, TEXT, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, NUMBER, nullable=False)


def _made() -> Column[int]:
    return Column("made", NUMBER, primary_key=True, autoincrement=True)


database_facts = Table(
    "database_facts",
    metadata,
    Column("name", TEXT, primary_key=True),
    _text("value"),
)

tasks = Table(
    "tasks",
    metadata,
    _made(),
    _text("tenant"),
    _text("id"),
    _text("agent"),
    _text("skill"),
    _text("skill_version"),
    _text("turn_id"),
    _text("path"),
    Column("work_for", Value(Principal), nullable=False),
    Column("given_by", Value(Principal), nullable=False),
    # Whose it is, for lists of what one account may see.
    _text("work_for_id"),
    _text("given_by_id"),
    _text("scope"),
    Column("start_time", UtcDateTime, nullable=False),
    Index(None, "tenant", "id", unique=True),
    Index(None, "tenant", "agent", "made"),
    Index(None, "tenant", "turn_id", "made"),
    Index(None, "tenant", "work_for_id", "made"),
    Index(None, "tenant", "given_by_id", "made"),
    sqlite_autoincrement=True,
)

# What a task was sent: 0 as it started, then each take-up. The text is rendered from the instructions' words.
receipts = Table(
    "receipts",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("task_id", TEXT, primary_key=True),
    Column("take_up", NUMBER, primary_key=True),
    _number("set_number"),
    _text("set_hash"),
    Column("instruction_ids", Value(tuple[str, ...]), nullable=False),
    _text("sha256"),
    _number("left_out"),
    _number("render_version"),
    Column("time", UtcDateTime, nullable=False),
    sqlite_with_rowid=False,
)

# Which tasks were sent an instruction.
sent = Table(
    "sent",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("instruction_id", TEXT, primary_key=True),
    Column("task_id", TEXT, primary_key=True),
    sqlite_with_rowid=False,
)

# To whom what a task proposed was put: they may read the work, and correct it.
put_to = Table(
    "put_to",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("task_id", TEXT, primary_key=True),
    Column("who", TEXT, primary_key=True),
    Column("proposal_id", TEXT, primary_key=True),
    Index(None, "tenant", "who", "task_id"),
    sqlite_with_rowid=False,
)

corrections = Table(
    "corrections",
    metadata,
    _made(),
    _text("tenant"),
    _text("id"),
    _text("task_id"),
    _text("agent"),
    _text("skill"),
    Column("wrong", WORDS, nullable=False),
    Column("right", WORDS, nullable=False),
    Column("because", WORDS, nullable=False),
    Column("corrected_output", WORDS, nullable=False),
    Column("severity", Named(Severity), nullable=False),
    _number("step"),
    _text("proposal_id"),
    _text("despite_instruction_id"),
    Column("by", Value(Principal), nullable=False),
    _text("by_id"),
    Column("time", UtcDateTime, nullable=False),
    Column("withdraw_time", UtcDateTime),
    Column("withdrawn_because", WORDS, nullable=False),
    Column("erase_time", UtcDateTime),
    Index(None, "tenant", "id", unique=True),
    Index(None, "tenant", "task_id", "made"),
    Index(None, "tenant", "agent", "made"),
    Index(None, "tenant", "by_id", "made"),
    sqlite_autoincrement=True,
)

instructions = Table(
    "instructions",
    metadata,
    _made(),
    _text("tenant"),
    _text("id"),
    _text("agent"),
    _text("skill"),
    _text("for_person"),
    _text("on_scope"),
    # Kept here once: blocks, previews and sets are made of it.
    Column("guidance", WORDS, nullable=False),
    Column("why", WORDS, nullable=False),
    Column("from_corrections", Value(tuple[str, ...]), nullable=False),
    Column("state", Named(InstructionState), nullable=False),
    Column("proposed_by", Value(Principal), nullable=False),
    _text("proposed_by_agent"),
    _text("drafted_by"),
    Column("revised_by", Value(Principal)),
    Column("reviewed_by", Value(Principal)),
    Column("review_why", WORDS, nullable=False),
    _number("first_set"),
    Column("first_active_time", UtcDateTime),
    Column("retired_by", Value(Principal)),
    Column("retired_why", WORDS, nullable=False),
    _text("guidance_hash"),
    Column("propose_time", UtcDateTime, nullable=False),
    Column("erase_time", UtcDateTime),
    Index(None, "tenant", "id", unique=True),
    Index(None, "tenant", "agent", "state"),
    sqlite_autoincrement=True,
)

# The corrections that an instruction was drawn from.
sources = Table(
    "sources",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("instruction_id", TEXT, primary_key=True),
    Column("correction_id", TEXT, primary_key=True),
    sqlite_with_rowid=False,
)

instruction_sets = Table(
    "instruction_sets",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("agent", TEXT, primary_key=True),
    Column("number", NUMBER, primary_key=True),
    _text("hash"),
    Column("change", Named(InstructionChange), nullable=False),
    _text("instruction_id"),
    _number("restored_from"),
    _text("restored_skill"),
    Column("members", Value(tuple[str, ...]), nullable=False),
    Column("by", Value(Principal), nullable=False),
    _text("by_id"),
    _text("by_kind"),
    _text("by_on_behalf_of"),
    Column("time", UtcDateTime, nullable=False),
    Column("why", WORDS, nullable=False),
    Column("proof", Value(Proof), nullable=False),
    CheckConstraint("number > 0", "numbered"),
    CheckConstraint("by_kind = 'PERSON' AND by_id <> '' AND by_on_behalf_of = ''", "by_a_person"),
)

requests = requests_table(metadata)
teaching_feed = feed_table(metadata, "teaching_feed")
