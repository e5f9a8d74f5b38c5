"""The teaching service's migrations: from whatever a database is at to what this release needs, all or nothing."""

from __future__ import annotations

from pathlib import Path

from service_kit import migrations

SCRIPTS = Path(__file__).parent


def migrate(url: str, *, at_start: bool = False) -> None:
    """Bring a database to this release's tables; at the service's start as `service_kit.migrations` says."""
    migrations.migrate(url, SCRIPTS, at_start=at_start)
