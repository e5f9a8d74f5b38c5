"""The prompt at which a person says yes to what a command has shown."""

from __future__ import annotations

import asyncio
import sys

import typer

from tutelage.cli.problems import CommandError


async def confirm(question: str, otherwise: str) -> None:
    """Go on only after a yes. Raises CommandError after anything else, which says `otherwise`."""
    if not sys.stdin.isatty():
        raise CommandError("There is no terminal to ask at. Add --yes to say yes to what was shown.")
    if not await asyncio.to_thread(typer.confirm, question):
        raise CommandError(otherwise)
