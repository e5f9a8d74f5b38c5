"""Feeds carry the transaction that wrote each line: on PostgreSQL they are read in its order."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OWN_TRANSACTION = {"sqlite": "0", "postgresql": "(pg_current_xact_id()::text::bigint)"}


def upgrade() -> None:
    own = sa.text(OWN_TRANSACTION[op.get_bind().dialect.name])
    for feed in ("teaching_feed",):
        op.add_column(feed, sa.Column("transaction_id", NUMBER, server_default=own, nullable=False))
        op.drop_index(f"ix_{feed}_tenant", feed)
        op.create_index(f"ix_{feed}_tenant", feed, ["tenant", "transaction_id", "position"])
