"""What an agent hands back, held to the output schema of its skill.

The schema is told in the system prompt, to every provider alike: what one can be asked to hold to by itself is less
than a schema may say, and differs from the next one's. What does not fit is told to the model, a few times.

Invariants:
- What did not fit is a record: a later release, or another library of schemas, changes nothing of what was said.
- What is handed back is what the model wrote, to the letter, but for a fence around it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from runtime_service.domain import canonical_json
from runtime_service.domain.agents import Skill
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.journal import ModelReplied, OutputDidNotFit
from runtime_service.domain.problems import RuntimeProblem
from runtime_service.engine import schemas
from runtime_service.engine.making import Task
from runtime_service.engine.writer import Writer

# How often an agent may hand back what does not fit, in one call.
MOST_TRIES = 3
MOST_OUTPUT_BYTES = 1024 * 1024

_ASKED_FOR = "Hand back JSON that fits this JSON Schema, and nothing before or behind it:"
# Models write JSON as they would show it to a person, whatever they are told.
_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


class OutputDoesNotFit(RuntimeProblem):
    """What an agent hands back does not fit its skill's schema, as often as it was told so. It ends the call."""

    reason: ClassVar[str] = "INVALID_FIELD"

    def __init__(self, agent: str, tries: int, told: str) -> None:
        super().__init__(
            f"What {agent} handed back did not fit the output schema of its skill, {tries} times. "
            f"The last time it was told: {told}",
            agent=agent,
        )


def asked_for(skill: Skill) -> str:
    """Return the skill's part of the system prompt: what is asked, and the schema of what is to be handed back."""
    schema = f"{_ASKED_FOR}\n{skill.output_schema_json}" if skill.output_schema_json else ""
    return "\n\n".join(part for part in (skill.description, schema) if part)


def handed_back(skill: Skill, written: str) -> str:
    """Return what a reply without calls hands back: its text, or its JSON where the skill has a schema."""
    fenced = _FENCED.fullmatch(written) if skill.output_schema_json else None
    return fenced[1] if fenced else written


def does_not_fit(writer: Writer, task: Task, skill: Skill, replied: ModelReplied) -> str:
    """Return what the model is told of a reply that does not fit, recorded once; empty where it fits.

    Raises `OutputDoesNotFit` where it has had its tries: since the turn was begun, or resumed after it failed.
    """
    past = writer.past.task(task.address)
    if task.step not in past.did_not_fit:
        told = _problem(skill, handed_back(skill, replied.text))
        if not told:
            return ""
        writer.record(task.address, OutputDidNotFit(told))
    tries = sum(past.failed_at < step <= task.step for step in past.did_not_fit)
    if tries >= MOST_TRIES:
        raise OutputDoesNotFit(task.started.agent, tries, past.did_not_fit[task.step])
    return past.did_not_fit[task.step]


def _problem(skill: Skill, output: str) -> str:
    if not skill.output_schema_json:
        return ""
    try:
        value = canonical_json.parse(output, limit_bytes=MOST_OUTPUT_BYTES)
    except JsonProblem as problem:
        return f"What you handed back is no JSON, and JSON is asked for. {problem}"
    found = schemas.problems(skill.output_schema_json, value)
    return schemas.told("What you handed back does not fit:", "the whole", found) if found else ""
