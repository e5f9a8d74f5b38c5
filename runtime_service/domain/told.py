"""What the model is told of a call (`runtime.md` R4). Where it comes from is in the record, not in these words."""

from __future__ import annotations

import json

from runtime_service.domain.journal import ToolDone

NO_SUCH_TOOL = "There is no tool of this name."
NOT_TO_BE_HAD = "This tool is not to be had now."
NOBODY_ANSWERED = "Nobody answered in time, so this call did not run."
INSTRUCTIONS_CHANGED = "The instructions changed, so this call did not run. Propose it again if it is still right."
LEFT_OUT = "This conversation is longer than what you are shown of it: its beginning is left out."
TOOK_TOO_LONG = "This tool took too long."

MOST_OUTCOME_CHARACTERS = 2_000


def not_allowed(reason: str) -> str:
    """Say that a person or a function said no."""
    no = "The person did not allow this call."
    return f"{no} Reason: {reason}" if reason else no


def input_changed(input_json: str) -> str:
    """Say that a person changed the input: what stands before the output."""
    return f"The person changed the input to: {input_json}\n"


def as_json(text: str) -> str:
    """Return a sentence as a JSON string: how a record keeps what the model is told instead of an output."""
    return json.dumps(text, ensure_ascii=False)


def told(done: ToolDone) -> str:
    """Return what the model is told of a call: a JSON string as its characters, other JSON as it was written."""
    output = json.loads(done.output_json) if done.output_json.lstrip().startswith('"') else done.output_json
    return f"{done.note}{output}"


def outcome(done: ToolDone) -> str:
    """Return what an approver is shown of what came of a call (settled 21)."""
    changed = "(input changed) " if done.note else ""
    return f"{changed}{told(done).removeprefix(done.note)}"[:MOST_OUTCOME_CHARACTERS]
