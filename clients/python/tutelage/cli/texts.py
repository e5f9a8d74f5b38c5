"""Texts that a command is given: from a file, or from standard input by `-`."""

from __future__ import annotations

import sys
from pathlib import Path

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError

STDIN = "-"


def text_of(name: str) -> str:
    """Read a file, or standard input by `-`. Raises CommandError for what is no text."""
    try:
        content = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
        return content.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{called(name)} is no text in UTF-8.", Exit.USAGE) from None
    except OSError as error:
        raise CommandError(f"{called(name)} cannot be read: {error.strerror}.", Exit.USAGE) from None


def called(name: str) -> str:
    """Say where a text came from, as a sentence begins."""
    return "What came on standard input" if name == STDIN else name
