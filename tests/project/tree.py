"""The tree that the tests of this folder look at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# Made by those who work here, and never kept.
MADE = {".venv", ".git", ".hypothesis", "__pycache__", "dist", "tutelage-data"}


def files(*suffixes: str, below: Path = ROOT) -> Iterator[Path]:
    """Yield the files that belong to the project, generated ones too."""
    for path in sorted(below.iterdir()):
        if path.name in MADE or path.name.endswith("_cache"):
            continue
        if path.is_dir():
            yield from files(*suffixes, below=path)
        elif not suffixes or path.suffix in suffixes:
            yield path


def ran(*command: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command at the root of the tree, and return what it said and came to."""
    return subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
