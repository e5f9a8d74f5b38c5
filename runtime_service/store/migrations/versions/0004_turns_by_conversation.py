"""A conversation's open turns by an index: each start of a turn looked at all that waits anywhere."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("ix_turns_tenant_conversation_id_state", "turns", ["tenant", "conversation_id", "state"])
