"""The first tables."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# An instruction is active only where a set says that a person activated it; whoever writes to the database (T2.2).
# The set is written first, in the same transaction.
NOT_BY_A_PERSON = """NEW.state = 'ACTIVE' AND NOT EXISTS (
    SELECT 1 FROM instruction_sets AS activation
    WHERE activation.tenant = NEW.tenant AND activation.agent = NEW.agent AND activation.number = NEW.first_set
        AND activation.change = 'ACTIVATED' AND activation.instruction_id = NEW.id
        AND activation.by_kind = 'PERSON' AND activation.by_on_behalf_of = ''
)"""
BY_A_PERSON_ALONE = "an instruction is made active by a person alone"
# Sets are only ever added. Why one was made is words, and can be erased.
ONLY_ADDED = "sets are only ever added"
SETS_FACTS = (
    "tenant, agent, number, hash, change, instruction_id, restored_from, restored_skill, members, "
    "by_id, by_kind, by_on_behalf_of, time, proof"
)

GUARDS = {
    "sqlite": (
        *(
            f"CREATE TRIGGER active_by_a_person_{name} BEFORE {event} ON instructions WHEN {NOT_BY_A_PERSON} "
            f"BEGIN SELECT RAISE(ABORT, '{BY_A_PERSON_ALONE}'); END"
            for name, event in (("inserted", "INSERT"), ("updated", "UPDATE"))
        ),
        *(
            f"CREATE TRIGGER sets_stay_{name} BEFORE {event} ON instruction_sets "
            f"BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END"
            for name, event in (("updated", f"UPDATE OF {SETS_FACTS}"), ("deleted", "DELETE"))
        ),
    ),
    "postgresql": (
        f"CREATE FUNCTION active_by_a_person() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {NOT_BY_A_PERSON} "
        f"THEN RAISE EXCEPTION '{BY_A_PERSON_ALONE}' USING ERRCODE = 'integrity_constraint_violation'; END IF; "
        "RETURN NEW; END $$",
        "CREATE TRIGGER active_by_a_person BEFORE INSERT OR UPDATE ON instructions "
        "FOR EACH ROW EXECUTE FUNCTION active_by_a_person()",
        "CREATE FUNCTION sets_stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION '{ONLY_ADDED}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
        f"CREATE TRIGGER sets_stay_updated BEFORE UPDATE OF {SETS_FACTS} ON instruction_sets "
        "FOR EACH ROW EXECUTE FUNCTION sets_stay()",
        "CREATE TRIGGER sets_stay_deleted BEFORE DELETE ON instruction_sets FOR EACH ROW EXECUTE FUNCTION sets_stay()",
        "CREATE TRIGGER sets_stay_emptied BEFORE TRUNCATE ON instruction_sets EXECUTE FUNCTION sets_stay()",
    ),
}


def upgrade() -> None:
    op.create_table(
        "corrections",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("skill", sa.String(), nullable=False),
        sa.Column("wrong", sa.Text(), nullable=False),
        sa.Column("right", sa.Text(), nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("corrected_output", sa.Text(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("proposal_id", sa.String(), nullable=False),
        sa.Column("despite_instruction_id", sa.String(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("by_id", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("withdraw_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("withdrawn_because", sa.Text(), nullable=False),
        sa.Column("erase_time", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("made"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_corrections_tenant_agent_made"), "corrections", ["tenant", "agent", "made"], unique=False)
    op.create_index(op.f("ix_corrections_tenant_by_id_made"), "corrections", ["tenant", "by_id", "made"], unique=False)
    op.create_index(op.f("ix_corrections_tenant_id"), "corrections", ["tenant", "id"], unique=True)
    op.create_index(
        op.f("ix_corrections_tenant_task_id_made"), "corrections", ["tenant", "task_id", "made"], unique=False
    )
    op.create_table(
        "database_facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "instruction_sets",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("change", sa.String(), nullable=False),
        sa.Column("instruction_id", sa.String(), nullable=False),
        sa.Column("restored_from", NUMBER, nullable=False),
        sa.Column("restored_skill", sa.String(), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("by_id", sa.String(), nullable=False),
        sa.Column("by_kind", sa.String(), nullable=False),
        sa.Column("by_on_behalf_of", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "by_kind = 'PERSON' AND by_id <> '' AND by_on_behalf_of = ''", name=op.f("ck_instruction_sets_by_a_person")
        ),
        sa.CheckConstraint("number > 0", name=op.f("ck_instruction_sets_numbered")),
        sa.PrimaryKeyConstraint("tenant", "agent", "number"),
    )
    op.create_table(
        "instructions",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("skill", sa.String(), nullable=False),
        sa.Column("for_person", sa.String(), nullable=False),
        sa.Column("on_scope", sa.String(), nullable=False),
        sa.Column("guidance", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("from_corrections", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("proposed_by", sa.Text(), nullable=False),
        sa.Column("proposed_by_agent", sa.String(), nullable=False),
        sa.Column("drafted_by", sa.String(), nullable=False),
        sa.Column("revised_by", sa.Text(), nullable=True),
        sa.Column("reviewed_by", sa.Text(), nullable=True),
        sa.Column("review_why", sa.Text(), nullable=False),
        sa.Column("first_set", NUMBER, nullable=False),
        sa.Column("first_active_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_by", sa.Text(), nullable=True),
        sa.Column("retired_why", sa.Text(), nullable=False),
        sa.Column("guidance_hash", sa.String(), nullable=False),
        sa.Column("propose_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("erase_time", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("made"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_instructions_tenant_agent_state"), "instructions", ["tenant", "agent", "state"], unique=False
    )
    op.create_index(op.f("ix_instructions_tenant_id"), "instructions", ["tenant", "id"], unique=True)
    op.create_table(
        "put_to",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("proposal_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "task_id", "who", "proposal_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_put_to_tenant_who_task_id"), "put_to", ["tenant", "who", "task_id"], unique=False)
    op.create_table(
        "receipts",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("take_up", NUMBER, nullable=False),
        sa.Column("set_number", NUMBER, nullable=False),
        sa.Column("set_hash", sa.String(), nullable=False),
        sa.Column("instruction_ids", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("left_out", NUMBER, nullable=False),
        sa.Column("render_version", NUMBER, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "task_id", "take_up"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "requests",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("rpc", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("response_key", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "account", "rpc", "request_id"),
    )
    op.create_table(
        "sent",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("instruction_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "instruction_id", "task_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sources",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("instruction_id", sa.String(), nullable=False),
        sa.Column("correction_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "instruction_id", "correction_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tasks",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("skill", sa.String(), nullable=False),
        sa.Column("skill_version", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("work_for", sa.Text(), nullable=False),
        sa.Column("given_by", sa.Text(), nullable=False),
        sa.Column("work_for_id", sa.String(), nullable=False),
        sa.Column("given_by_id", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("made"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_tasks_tenant_agent_made"), "tasks", ["tenant", "agent", "made"], unique=False)
    op.create_index(op.f("ix_tasks_tenant_given_by_id_made"), "tasks", ["tenant", "given_by_id", "made"], unique=False)
    op.create_index(op.f("ix_tasks_tenant_id"), "tasks", ["tenant", "id"], unique=True)
    op.create_index(op.f("ix_tasks_tenant_turn_id_made"), "tasks", ["tenant", "turn_id", "made"], unique=False)
    op.create_index(op.f("ix_tasks_tenant_work_for_id_made"), "tasks", ["tenant", "work_for_id", "made"], unique=False)
    op.create_table(
        "teaching_feed",
        sa.Column("position", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_teaching_feed_subject", "teaching_feed", ["subject", "position"], unique=False)
    op.create_index("ix_teaching_feed_tenant", "teaching_feed", ["tenant", "position"], unique=False)

    for statement in GUARDS[op.get_bind().dialect.name]:
        op.execute(statement)
    # What tells this database from any other, and from itself before a restore: cursors are bound to it.
    facts = sa.table("database_facts", sa.column("name"), sa.column("value"))
    op.bulk_insert(facts, [{"name": "generation", "value": uuid.uuid4().hex}])
