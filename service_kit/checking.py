"""A service's `check`: what of all that it keeps does not hold, a line for each thing.

It changes nothing, takes no lock, and may be run beside the service that serves the database.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from service_kit.database import Database
from service_kit.errors import SetupProblem
from service_kit.migrations import require_newest


class Wrong(Protocol):
    """One thing that does not hold."""

    @property
    def where(self) -> str:
        """Name where it is: a turn, a line of it, an approval."""
        ...

    @property
    def what(self) -> str:
        """Say what does not hold."""
        ...

    @property
    def rule(self) -> str:
        """Name the rule that it breaks."""
        ...


@asynccontextmanager
async def kept(url: str, scripts: Path) -> AsyncIterator[Database]:
    """Open a database to look at it, as the migrations of a folder leave one.

    Raises `SetupProblem` where there is none, or one of another release.
    """
    _require_there(url)
    database = Database(url)
    try:
        await database.read(partial(require_newest, scripts=scripts))
        yield database
    finally:
        await database.close()


async def report(found: AsyncIterator[Wrong], *, as_json: bool) -> int:
    """Print what does not hold, and return the exit code: 0 where all holds, else 1."""
    wrong = []
    async for one in found:
        wrong.append({"where": one.where, "what": one.what, "rule": one.rule})
        if not as_json:
            print(f"{one.where}: {one.what} ({one.rule})", flush=True)  # noqa: T201
    if as_json:
        print(json.dumps({"holds": not wrong, "wrong": wrong}, ensure_ascii=False))  # noqa: T201
    else:
        print(f"{len(wrong)} of it does not hold." if wrong else "All of it holds.")  # noqa: T201
    return 1 if wrong else 0


def _require_there(url: str) -> None:
    try:
        parsed = make_url(url)
    except ArgumentError:
        # Whoever opens it says what is wrong with it.
        return
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        raise SetupProblem(f"There is no database {parsed.database}: nothing was ever kept there.")
