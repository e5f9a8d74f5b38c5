"""Why the teaching service refused something. One class for each reason, and one root.

TeachingProblem
├── about an instruction  InstructionStateProblem, TooMuchToSend, WordsChanged, WordsProblem (words.py)
├── about a set           SetMovedOn, MembersErased, AlreadyOnSet
├── about a correction    CorrectionGone
├── about who asks        PersonRequired, NotAdmitted, NoSuchThing
└── about what was sent   InvalidFields, IdReused

`reason` is the name of an `ErrorReason` without its prefix. `str(problem)` is the sentence for the caller:
what is wrong, and what to do about it. `metadata` holds ids and numbers, never anybody's words. One interceptor maps
them all to a status.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar


class TeachingProblem(Exception):
    """The root. Never raised itself."""

    reason: ClassVar[str]

    def __init__(self, sentence: str, *, fields: Iterable[tuple[str, str]] = (), **metadata: str | int) -> None:
        super().__init__(sentence)
        self.metadata: dict[str, str] = {key: str(value) for key, value in metadata.items() if value != ""}
        self.fields: tuple[tuple[str, str], ...] = tuple(fields)
        self.retry_after: float | None = None


class InstructionStateProblem(TeachingProblem):
    """The instruction is not in a state that allows this. `state` is its own; `what` completes "you cannot … it"."""

    reason = "INSTRUCTION_STATE"

    def __init__(self, instruction_id: str, state: str, what: str) -> None:
        super().__init__(
            f"Instruction {instruction_id} is {state.lower()}, so you cannot {what} it. Read it again.",
            instruction_id=instruction_id,
            state=state,
        )


class TooMuchToSend(TeachingProblem):
    """Work would be sent more than the most. `work` says which: `everything`, `skill write`, `scope team:1`."""

    reason = "TOO_MUCH_TO_SEND"

    def __init__(
        self, work: str, instructions: int, characters: int, most_instructions: int, most_characters: int
    ) -> None:
        super().__init__(
            f"Active, this would have work for {work} sent {instructions} instructions and {characters} characters; "
            f"the most are {most_instructions} and {most_characters}. Retire or replace some first.",
            work=work,
            instructions=instructions,
            characters=characters,
            most_instructions=most_instructions,
            most_characters=most_characters,
        )


class WordsChanged(TeachingProblem):
    """The words that the reviewer read were revised since."""

    reason = "WORDS_CHANGED"

    def __init__(self, instruction_id: str) -> None:
        super().__init__(
            f"The words of instruction {instruction_id} are not those that you read. Nothing was activated; "
            "read it again.",
            instruction_id=instruction_id,
        )


class SetMovedOn(TeachingProblem):
    """Another set came since the reviewer looked."""

    reason = "SET_MOVED_ON"

    def __init__(self, agent: str, expected_set: int, newest_set: int) -> None:
        super().__init__(
            f"{agent} is on set {newest_set}, not on {expected_set}. Nothing was changed; read it again.",
            agent=agent,
            expected_set=expected_set,
            newest_set=newest_set,
        )


class MembersErased(TeachingProblem):
    """The set to restore has members whose words are gone."""

    reason = "MEMBERS_ERASED"

    def __init__(self, agent: str, to_set: int, instruction_ids: Sequence[str]) -> None:
        super().__init__(
            f"Set {to_set} of {agent} has {len(instruction_ids)} whose words were erased. "
            "Say `without_erased` to restore the others.",
            agent=agent,
            to_set=to_set,
            instruction_ids=",".join(instruction_ids),
        )


class AlreadyOnSet(TeachingProblem):
    """What would be restored is what stands."""

    reason = "ALREADY_ON_SET"

    def __init__(self, agent: str, to_set: int, newest_set: int) -> None:
        super().__init__(
            f"What set {to_set} of {agent} would restore is what stands, as set {newest_set}. Nothing was changed.",
            agent=agent,
            to_set=to_set,
            newest_set=newest_set,
        )


class CorrectionGone(TeachingProblem):
    """The correction was withdrawn or erased."""

    reason = "CORRECTION_GONE"

    def __init__(self, correction_id: str) -> None:
        super().__init__(f"Correction {correction_id} was taken back or erased.", correction_id=correction_id)


class PersonRequired(TeachingProblem):
    """Only a person who signed in and speaks for themselves may do this. `what` completes "Only … may …"."""

    reason = "PERSON_REQUIRED"

    def __init__(self, what: str) -> None:
        super().__init__(f"Only a signed-in person may {what}: no program, no agent, and neither on a person's behalf.")


class NotAdmitted(TeachingProblem):
    """The caller may not do this. `roles` are those of which one would let them."""

    reason = "NOT_ADMITTED"

    def __init__(self, what: str, roles: Sequence[str] = ()) -> None:
        needed = f" It needs {' or '.join(f'`{role}`' for role in roles)}." if roles else ""
        super().__init__(f"You may not {what}.{needed}", roles=",".join(roles))


class NoSuchThing(TeachingProblem):
    """Nothing of that id exists that the caller may see. `kind` is its word: task, correction, instruction, set."""

    reason = "NO_SUCH_THING"

    def __init__(self, kind: str, thing_id: str) -> None:
        super().__init__(
            f"There is no {kind} `{thing_id}` that you may see. Check the id, and who you are signed in as.",
            kind=kind,
            id=thing_id,
        )


class InvalidFields(TeachingProblem):
    """Fields of a request are not allowed. Names every one of them at once (R12)."""

    reason = "INVALID_FIELD"

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        wrong = tuple(fields)
        super().__init__(" ".join(f"{path}: {sentence}" for path, sentence in wrong), fields=wrong)


class IdReused(TeachingProblem):
    """An id that the caller chose was used before for something else."""

    reason = "REQUEST_ID_REUSED"

    def __init__(self, kind: str, thing_id: str) -> None:
        super().__init__(f"The {kind} `{thing_id}` was begun before as something else.", kind=kind, id=thing_id)
