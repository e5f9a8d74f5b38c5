"""The first tables."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("registered", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("made"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_agents_tenant_name_version", "agents", ["tenant", "name", "version"], unique=True)

    op.create_table(
        "approval_feed",
        sa.Column("position", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_approval_feed_subject", "approval_feed", ["subject", "position"], unique=False)
    op.create_index("ix_approval_feed_tenant", "approval_feed", ["tenant", "position"], unique=False)

    op.create_table(
        "approvals",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("asking_turn_id", sa.String(), nullable=False),
        sa.Column("conversation_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("invocation", NUMBER, nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("tool_description", sa.Text(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("schema_json", sa.Text(), nullable=False),
        sa.Column("effects", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("instruction_set", NUMBER, nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("work_for", sa.Text(), nullable=False),
        sa.Column("given_by", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("put_to", sa.Text(), nullable=False),
        sa.Column("approvals_needed", NUMBER, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("ask_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expire_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answers", sa.Text(), nullable=False),
        sa.Column("supersedes", sa.String(), nullable=False),
        sa.Column("asked_by_rule", sa.String(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("declaration_hash", sa.String(), nullable=False),
        sa.Column("agent_version", sa.String(), nullable=False),
        sa.Column("skill", sa.String(), nullable=False),
        sa.Column("skill_version", sa.String(), nullable=False),
        sa.Column("block_sha256", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("to_copy", sa.Boolean(), nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id", name=op.f("uq_approvals_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_approvals_asking_turn_id_closed", "approvals", ["asking_turn_id", "closed"], unique=False)
    op.create_index("ix_approvals_state_expire_time", "approvals", ["state", "expire_time"], unique=False)
    op.create_index("ix_approvals_tenant_state_seq", "approvals", ["tenant", "state", "seq"], unique=False)
    op.create_index("ix_approvals_turn_id_seq", "approvals", ["turn_id", "seq"], unique=False)

    op.create_table(
        "calls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("invocation", NUMBER, nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("incarnation", sa.String(), nullable=False),
        sa.Column("session", NUMBER, nullable=False),
        sa.Column("timeout_seconds", sa.Float(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approval_id", sa.String(), nullable=False),
        sa.Column("unfinished", sa.Boolean(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("resolution", sa.Text(), nullable=True),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("result_copied", sa.Boolean(), nullable=False),
        sa.Column("resolution_copied", sa.Boolean(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("to_copy", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_calls_incarnation_open", "calls", ["incarnation", "open"], unique=False)
    op.create_index("ix_calls_turn_id_open", "calls", ["turn_id", "open"], unique=False)
    op.create_index("ix_calls_turn_id_to_copy", "calls", ["turn_id", "to_copy"], unique=False)

    op.create_table(
        "conversations",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("approve", sa.Text(), nullable=True),
        sa.Column("opened_by", sa.Text(), nullable=False),
        sa.Column("opened_by_id", sa.String(), nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("turns", NUMBER, nullable=False),
        sa.Column("newest_done", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("made"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_conversations_tenant_id", "conversations", ["tenant", "id"], unique=True)

    op.create_table(
        "database_facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "declarations",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("declare_time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", "hash"),
    )
    op.create_table(
        "leases",
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("process"),
    )
    op.create_table(
        "put_to",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("approval_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "who", "approval_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_put_to_approval_id", "put_to", ["approval_id"], unique=False)
    op.create_index("ix_put_to_turn_id", "put_to", ["turn_id"], unique=False)

    op.create_table(
        "records",
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("line", NUMBER, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("writer", NUMBER, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("words_salt", sa.LargeBinary(), nullable=False),
        sa.Column("words_digest", sa.String(), nullable=False),
        sa.Column("content_digest", sa.String(), nullable=False),
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("erase_time", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("turn_id", "line"),
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
        "sessions",
        sa.Column("incarnation", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("end_time", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("incarnation"),
    )
    op.create_index("ix_sessions_process", "sessions", ["process"], unique=False)

    op.create_table(
        "tool_lists",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "hash"),
    )
    op.create_table(
        "turn_feed",
        sa.Column("position", NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_turn_feed_subject", "turn_feed", ["subject", "position"], unique=False)
    op.create_index("ix_turn_feed_tenant", "turn_feed", ["tenant", "position"], unique=False)

    op.create_table(
        "turns",
        sa.Column("made", NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("conversation_id", sa.String(), nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("agent_version", sa.String(), nullable=False),
        sa.Column("skill", sa.String(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("work_for", sa.Text(), nullable=False),
        sa.Column("given_by", sa.Text(), nullable=False),
        sa.Column("work_for_id", sa.String(), nullable=False),
        sa.Column("given_by_id", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("update_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("after_turn_id", sa.String(), nullable=False),
        sa.Column("parent_turn_id", sa.String(), nullable=False),
        sa.Column("parent_address", sa.String(), nullable=False),
        sa.Column("attended", sa.String(), nullable=False),
        sa.Column("needed_approval", sa.String(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("ready_because", sa.String(), nullable=False),
        sa.Column("writer", NUMBER, nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("line", NUMBER, nullable=False),
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("awaits_tools", sa.Text(), nullable=False),
        sa.Column("tries", NUMBER, nullable=False),
        sa.Column("retry_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("made"),
        sa.UniqueConstraint("id", name=op.f("uq_turns_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_turns_state_made", "turns", ["state", "made"], unique=False)
    op.create_index(
        "ix_turns_tenant_conversation_id_made", "turns", ["tenant", "conversation_id", "made"], unique=False
    )
    op.create_index("ix_turns_tenant_given_by_id_made", "turns", ["tenant", "given_by_id", "made"], unique=False)
    op.create_index("ix_turns_tenant_made", "turns", ["tenant", "made"], unique=False)
    op.create_index("ix_turns_tenant_state_made", "turns", ["tenant", "state", "made"], unique=False)
    op.create_index("ix_turns_tenant_work_for_id_made", "turns", ["tenant", "work_for_id", "made"], unique=False)
    # What tells this database from any other, and from itself before a restore: cursors are bound to it.
    facts = sa.table("database_facts", sa.column("name"), sa.column("value"))
    op.bulk_insert(facts, [{"name": "generation", "value": uuid.uuid4().hex}])
