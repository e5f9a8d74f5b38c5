"""Corrections: what was wrong with one piece of work (T1).

What one says is never changed; its writer can take it back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from teaching_service.domain.access import Account
from teaching_service.domain.principals import Principal
from teaching_service.domain.problems import CorrectionGone, NotAdmitted

MOST_CHARACTERS = 4_000


class Severity(enum.Enum):
    """How much it mattered: `corrections.proto`."""

    UNSPECIFIED = "UNSPECIFIED"
    MINOR = "MINOR"
    MISTAKE = "MISTAKE"
    SERIOUS = "SERIOUS"


@dataclass(frozen=True, slots=True)
class CorrectionDraft:
    """What a correction says."""

    wrong: str
    right: str
    because: str
    corrected_output: str = ""
    severity: Severity = Severity.MISTAKE
    step: int = 0
    proposal_id: str = ""
    despite_instruction_id: str = ""


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction's row."""

    id: str
    tenant: str
    task_id: str
    agent: str
    skill: str
    says: CorrectionDraft
    by: Principal
    time: datetime
    withdraw_time: datetime | None = None
    withdrawn_because: str = ""
    erase_time: datetime | None = None
    made: int = 0

    @property
    def stands(self) -> bool:
        """Whether something may still be drawn from it."""
        return self.withdraw_time is None and self.erase_time is None


def problems(draft: CorrectionDraft) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a draft, field by field: the reason is needed as much as what was wrong."""
    for name in ("wrong", "right", "because"):
        text: str = getattr(draft, name)
        if not text.strip():
            yield name, "This is needed."
        elif len(text) > MOST_CHARACTERS:
            yield name, f"At most {MOST_CHARACTERS} characters; this has {len(text)}."
    if draft.step < 0:
        yield "step", "A line of the record, or 0 for the result."


def withdrawn(correction: Correction, by: Account, why: str, now: datetime) -> Correction:
    """Return a correction taken back, by its writer alone. Raises `CorrectionGone` for one that does not stand."""
    if by.principal.id != correction.by.id:
        raise NotAdmitted("take back a correction that somebody else wrote")
    if not correction.stands:
        raise CorrectionGone(correction.id)
    return replace(correction, withdraw_time=now, withdrawn_because=why)
