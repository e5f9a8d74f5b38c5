"""`python -m teaching_service`: serve until told to stop.

With `migrate`: bring the database up to date, and end. With `check`: say what of it does not hold, and end.
"""

from __future__ import annotations

import sys

from service_kit import command
from teaching_service.server import running
from teaching_service.settings import Settings
from teaching_service.store.checking import check
from teaching_service.store.migrations import migrate

ABOUT = "The Tutelage teaching service: keeps what people tell agents, and what each piece of work was sent of it."

if __name__ == "__main__":
    sys.exit(command.run("teaching_service", ABOUT, Settings, migrate, check, running))
