"""The teaching service's migrations: from whatever a database is at to what this release needs, all or nothing."""

from __future__ import annotations

from pathlib import Path

from service_kit import migrations


def migrate(url: str) -> None:
    """Bring a database to this release's tables. Done already: nothing happens. Needs no event loop around it."""
    migrations.migrate(url, Path(__file__).parent)
