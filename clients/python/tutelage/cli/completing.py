"""What the shell completes from the services themselves: agents' names, approvals that wait.

A completion says nothing where nobody is signed in or no service answers: at a prompt no error helps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tutelage.cli.pages import listed
from tutelage.cli.problems import CommandError
from tutelage.cli.reach import DEFAULT_DATA_DIR, reach
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.runtime.v1.agents_pb2 import ListAgentsRequest
from tutelage.runtime.v1.approvals_pb2 import ListApprovalsRequest

PATIENCE_SECONDS = 2.0


def agents(incomplete: str) -> list[str]:
    """Complete an agent's name."""

    async def names(runtime: Tutelage) -> Iterable[str]:
        found = await listed(runtime.agents.ListAgents, ListAgentsRequest())
        return [agent.spec.name for agent in found.agents]

    return _beginning(incomplete, names)


def approvals_that_wait(incomplete: str) -> list[str]:
    """Complete the id of an approval that waits."""

    async def ids(runtime: Tutelage) -> Iterable[str]:
        found = await listed(runtime.approvals.ListApprovals, ListApprovalsRequest())
        return [approval.id for approval in found.approvals]

    return _beginning(incomplete, ids)


def _beginning(incomplete: str, ask: Callable[[Tutelage], Awaitable[Iterable[str]]]) -> list[str]:
    async def asked() -> Iterable[str]:
        folder = Path(os.environ.get("TUTELAGE_DATA_DIR", DEFAULT_DATA_DIR))
        async with asyncio.timeout(PATIENCE_SECONDS), reach(folder) as runtime:
            return await ask(runtime)

    with suppress(CommandError, TutelageError, TimeoutError):
        return [name for name in asyncio.run(asked()) if name.startswith(incomplete)]
    return []
