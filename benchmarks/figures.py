"""How a benchmark's figures are shown: a row for each, a column for each size, and how they grow.

Machines differ, so the ratios of one run are what counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


class Figures:
    """One benchmark's figures, at several sizes of the same work."""

    def __init__(self, title: str, sizes: Sequence[int]) -> None:
        self._title = title
        self._sizes = sizes
        self._rows: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """Add a figure, its unit in its name: of the first size first, and so on."""
        self._rows[name].append(value)

    def show(self) -> None:
        """Print them, the last size against the first."""
        table = Table(title=self._title, title_justify="left", title_style="bold")
        table.add_column("")
        first, *_, last = self._sizes
        for heading in (*(f"{size:,}" for size in self._sizes), f"{last:,} : {first:,}"):
            table.add_column(heading, justify="right")
        for name, values in self._rows.items():
            shown = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
            table.add_row(name, *shown, f"× {values[-1] / values[0]:.1f}")
        Console(width=120).print(table)
