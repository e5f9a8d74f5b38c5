"""The exit codes of every command, held in one place: scripts rely on them.

What a turn came to has codes of its own, so that a script can tell a failure of the work from one of the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    FAILED = 4
    ABANDONED = 5
    WAITING = 6
    INTERRUPTED = 7
    TIMED_OUT = 124
    STOPPED = 130


MEANINGS: Mapping[Exit, str] = MappingProxyType(
    {
        Exit.DONE: "It is done. Of a turn that was waited for: it is DONE.",
        Exit.REFUSED: "The service refused, or the command did: the line on standard error says why. "
        "Of `check`: something does not hold.",
        Exit.USAGE: "The command, or a file that it was given, is wrong. No service was asked.",
        Exit.UNREACHABLE: "The service, or a part that it needs, cannot be reached. The same again may succeed.",
        Exit.FAILED: "The turn FAILED.",
        Exit.ABANDONED: "The turn was ABANDONED.",
        Exit.WAITING: "The turn waits for a person's answer.",
        Exit.INTERRUPTED: "The turn is INTERRUPTED: a call may have run, and a person must say what became of it.",
        Exit.TIMED_OUT: "The time of `--timeout` is over. What was waited for goes on.",
        Exit.STOPPED: "Ctrl-C. What was waited for goes on.",
    }
)
# What every command can end with; one that waits; one that follows a turn to its end, or to its need of a person.
ANY = (Exit.DONE, Exit.REFUSED, Exit.USAGE, Exit.UNREACHABLE)
OF_A_WAIT = (Exit.TIMED_OUT, Exit.STOPPED)
ENDS_OF_A_TURN = (Exit.FAILED, Exit.ABANDONED)
NEEDS_OF_A_TURN = (Exit.WAITING, Exit.INTERRUPTED)
