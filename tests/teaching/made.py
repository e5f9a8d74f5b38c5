"""Values of the domain for tests: instructions of any kind, and people who teach."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from teaching_service.domain.access import Account
from teaching_service.domain.instructions import Instruction, InstructionDraft, InstructionState, hash_of
from teaching_service.domain.principals import Principal, PrincipalKind

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEACHER = Account(Principal("hale", PrincipalKind.PERSON), frozenset({"teaches"}))
AIMS: list[dict[str, Any]] = [
    {},
    {"skill": "WriteTag"},
    {"skill": "Price"},
    {"on_scope": "team:1"},
    {"on_scope": "team:2"},
    {"for_person": "gus"},
    {"for_person": "ana"},
]


def instruction(instruction_id: str, guidance: str = "Be brief.", first_set: int = 0, **says: Any) -> Instruction:
    """A proposal, or an active instruction where it has a first set."""
    return Instruction(
        id=instruction_id,
        tenant="default",
        says=InstructionDraft(agent="Tagger", guidance=guidance, **says),
        proposed_by=Principal("gus", PrincipalKind.PERSON),
        guidance_hash=hash_of(guidance),
        propose_time=NOON,
        state=InstructionState.ACTIVE if first_set else InstructionState.PROPOSED,
        first_set=first_set,
    )


@st.composite
def _active(draw: st.DrawFn) -> list[Instruction]:
    count = draw(st.integers(0, 12))
    firsts: list[Any] = draw(st.permutations(range(1, count + 1)))
    return [
        instruction(
            f"i{number}", draw(st.text("abc ü🌷", min_size=1, max_size=30)), number, **draw(st.sampled_from(AIMS))
        )
        for number in firsts
    ]


# An agent's active instructions, in no order.
active = _active()
