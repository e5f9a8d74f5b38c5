"""What a call is shown of what was said before it: earlier turns of its branch, earlier calls of a delegate (R9).

Inputs and outputs alone, without steps. What lies behind a call never changes, so every writer is shown the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime_service.domain.addresses import Address, path_of

# The newest are shown: so many, and no more once those fill so many characters. What is left out is said.
MOST_SHOWN = 1_000
MOST_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Said:
    """One earlier turn or call: what was asked, and what was handed back."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is shown, oldest first. `cut`: there was more before it."""

    said: tuple[Said, ...] = ()
    cut: bool = False

    def then(self, later: Sequence[Said]) -> Earlier:
        """Return what is shown of this with something later behind it: the newest."""
        everything = (*self.said, *later)
        size, most = 0, len(everything)
        for count, one in enumerate(reversed(everything)):
            if count == MOST_SHOWN or size >= MOST_CHARACTERS:
                most = count
                break
            size += len(one.input) + len(one.output)
        return Earlier(everything[len(everything) - most :], self.cut or most < len(everything))


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call of a delegate that returned: what later ones remember of it."""

    delegate: str
    said: Said


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a delegate's calls returned before a writer began: in earlier turns of the branch; in its own, by line."""

    before: Earlier
    here: Sequence[tuple[int, Said]]


def delegate_of(caller: Address, agent: str) -> str:
    """Name a delegate by where it is called: the caller's path, and the agent, whichever of its skills is called."""
    return f"{path_of(caller)}/{agent}"
