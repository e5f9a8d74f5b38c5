"""What several replicas need: feeds in the order of transactions, and rows by which hosts are asked elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OWN_TRANSACTION = {"sqlite": "0", "postgresql": "(pg_current_xact_id()::text::bigint)"}


def upgrade() -> None:
    own = sa.text(OWN_TRANSACTION[op.get_bind().dialect.name])
    for feed in ("approval_feed", "turn_feed"):
        op.add_column(feed, sa.Column("transaction_id", NUMBER, server_default=own, nullable=False))
        op.drop_index(f"ix_{feed}_tenant", feed)
        op.create_index(f"ix_{feed}_tenant", feed, ["tenant", "transaction_id", "position"])

    op.add_column("sessions", sa.Column("offers", sa.Text(), server_default="[]", nullable=False))

    op.create_table(
        "reads",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("incarnation", sa.String(), nullable=False),
        sa.Column("session", NUMBER, nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("timeout_seconds", sa.Float(), nullable=False),
        sa.Column("ask_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_reads_incarnation", "reads", ["incarnation"])
    op.create_index("ix_reads_ask_time", "reads", ["ask_time"])
