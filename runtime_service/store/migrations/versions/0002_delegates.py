"""What delegates' calls returned: what later ones remember."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "delegate_calls",
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("line", NUMBER, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("delegate", sa.String(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("turn_id", "line"),
    )
