"""How a command prints: for people, or as JSON for programs.

What people read is made fit to be shown on the way (`shown.py`): names, values and cells. Ids are never cut. Where
standard output is no terminal it is plain: no colours, no lines around tables, no breaking at a width. JSON is the
contract's own message, to the letter: a result is one object, and what comes bit by bit is one object a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tutelage.shown import shown

Told = TypeVar("Told", bound=Message)

CELL_CHARACTERS = 200
# An id, a hash, a number, a state: one word, which is neither cut nor broken.
ID_CHARACTERS = 130
NARROWEST_CELL = 12


def tell(message: Told, as_json: bool, in_words: Callable[[Told], None]) -> None:
    """Print a message: for people as they read it, for programs as it is."""
    if as_json:
        print_json_value(message_dict(message))
    else:
        in_words(message)


def print_json_value(value: Mapping[str, Any]) -> None:
    """Print one JSON object. Letters beyond ASCII are escaped, so that nothing hides in it."""
    typer.echo(json.dumps(value, indent=2))


def print_json_line(message: Message) -> None:
    """Print a message as one JSON object in a line, at once."""
    typer.echo(json.dumps(message_dict(message)))
    sys.stdout.flush()


def message_dict(message: Message) -> dict[str, Any]:
    """Return a message by the contract's names, those fields too that are empty."""
    told: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return told


def print_line(line: str, *, bold: bool = False) -> None:
    """Print a line as it stands. It is not broken, however narrow the terminal is."""
    typer.secho(line, bold=bold or None)


def print_aside(line: str) -> None:
    """Print what is no part of the result: on standard error."""
    typer.echo(shown(line), err=True)


def print_named(title: str, named: Iterable[tuple[str, str]]) -> None:
    """Print a title, and what there is to say by name; what is empty is left out."""
    print_line(shown(title), bold=True)
    for name, value in named:
        if value:
            print_line(f"  {name:<12}{shown(value)}")


def print_below(name: str, lines: str) -> None:
    """Print lines that were made fit to be shown below their name."""
    print_line(f"  {name}")
    for line in lines.split("\n"):
        print_line(f"    {line}")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = CELL_CHARACTERS) -> None:
    """Print a table, `most` characters of each cell."""
    cells = [[shown(cell, most) for cell in row] for row in rows]
    print_line(title, bold=True)
    console = Console(highlight=False)
    if console.is_terminal:
        _print_framed(console, columns, cells)
    else:
        _print_plain(columns, cells)


def _print_framed(console: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print a table for a terminal. Words are kept whole; where that is too wide, the terminal breaks the lines."""
    table = Table()
    least = 1
    for place, column in enumerate(columns):
        whole = all(_is_word(row[place]) for row in cells)
        widest = max(cell_len(text) for text in (column, *(row[place] for row in cells)))
        table.add_column(column, overflow="fold", no_wrap=whole)
        least += 3 + (widest if whole else min(widest, NARROWEST_CELL))
    for row in cells:
        table.add_row(*map(Text, row))
    console.width = max(console.width, least)
    console.print(table, soft_wrap=False)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print a table for a file or a program: a row is a line, whole."""
    lines = [columns, *cells]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        print_line("  ".join(padded).rstrip())


def _is_word(cell: str) -> bool:
    return len(cell) <= ID_CHARACTERS and " " not in cell
