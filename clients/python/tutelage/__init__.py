"""Tutelage for Python: connect to a runtime, offer it tools, and teach its agents.

The names here are loaded when they are first used: the services import the stubs below this package, and
nothing else of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.client import Teaching, Tutelage, connect, connect_teaching
    from tutelage.errors import TutelageError
    from tutelage.host import ToolHost
    from tutelage.tools import CHANGES, READS, Call, Tool, current_call, tool

_HOMES = {
    "Teaching": "client",
    "Tutelage": "client",
    "connect": "client",
    "connect_teaching": "client",
    "TutelageError": "errors",
    "ToolHost": "host",
    "CHANGES": "tools",
    "READS": "tools",
    "Call": "tools",
    "Tool": "tools",
    "current_call": "tools",
    "tool": "tools",
}

__all__ = [
    "CHANGES",
    "READS",
    "Call",
    "Teaching",
    "Tool",
    "ToolHost",
    "Tutelage",
    "TutelageError",
    "connect",
    "connect_teaching",
    "current_call",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
