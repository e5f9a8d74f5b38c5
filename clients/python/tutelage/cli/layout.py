"""How a command lays out what it prints. Names, values and cells are made fit to be shown on the way (`shown.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tutelage.shown import shown

CELL_CHARACTERS = 200


def print_line(line: str, style: str = "") -> None:
    """Print a line as it stands. It is not broken, however narrow the terminal is."""
    Console(highlight=False).print(Text(line, style=style), soft_wrap=True)


def print_named(title: str, named: Iterable[tuple[str, str]]) -> None:
    """Print a title, and what there is to say by name; what is empty is left out."""
    print_line(shown(title), "bold")
    for name, value in named:
        if value:
            print_line(f"  {name:<12}{shown(value)}")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = CELL_CHARACTERS) -> None:
    """Print a table, `most` characters of each cell."""
    table = Table(title=title, title_justify="left", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell, most)) for cell in row))
    Console(highlight=False).print(table)
