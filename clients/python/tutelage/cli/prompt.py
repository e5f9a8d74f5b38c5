"""The prompt at which a person says yes to what a command has shown."""

from __future__ import annotations

import asyncio
import sys

import typer

from tutelage.cli.problems import CommandError


async def agreed(yes: bool, as_json: bool, question: str, otherwise: str) -> None:
    """Go on only after a yes, by `--yes` or at the prompt. Raises CommandError after anything else: `otherwise`."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        where = "With --json nobody is asked." if as_json else "There is no terminal to ask at."
        raise CommandError(f"{where} Add --yes to say yes to what was shown.")
    if not await asyncio.to_thread(typer.confirm, question):
        raise CommandError(otherwise)
