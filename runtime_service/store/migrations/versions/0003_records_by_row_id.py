"""Records in the order of their writing: kept by their key in SQLite, they left two thirds of each page empty."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        return
    made = bind.execute(sa.text("SELECT sql FROM sqlite_master WHERE name = 'records'")).scalar_one()
    op.rename_table("records", "records_by_key")
    op.execute(made.replace("WITHOUT ROWID", ""))
    op.execute("INSERT INTO records SELECT * FROM records_by_key ORDER BY turn_id, line")
    op.drop_table("records_by_key")
