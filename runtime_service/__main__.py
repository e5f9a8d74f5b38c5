"""`python -m runtime_service`: serve until told to stop.

With `migrate`: bring the database up to date, and end. With `check`: say what of it does not hold, and end.
"""

from __future__ import annotations

import sys

from runtime_service.server import running
from runtime_service.settings import Settings
from runtime_service.store.checking import check
from runtime_service.store.migrations import migrate
from service_kit import command

ABOUT = "The Tutelage runtime: runs agents' turns, and asks a person before a tool changes the world."

if __name__ == "__main__":
    sys.exit(command.run("runtime_service", ABOUT, Settings, migrate, check, running))
