"""Inputs, outputs and their schemas (JSON Schema, draft 2020-12).

- What does not fit is told field by field, in words for the model, and never with the input itself.
- A check ends soon, whatever schema and input say: patterns take linear time (no look-around, no
  back-references), nothing is fetched, and looks are counted beforehand (`schema_cost`).
- `format` and `default` only tell: a check neither looks at them nor changes an input.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs

from runtime_service.domain import canonical_json
from runtime_service.engine.schema_cost import MOST_LOOKS, SchemaRefused, looks_by_depth
from runtime_service.engine.schema_words import Problem, in_words, path_of

MOST_SCHEMA_BYTES = 64 * 1024
MOST_PROBLEMS = 20
# An error costs the library some hundred times what a look costs, and each holds a copy of what it is about.
_MOST_LOOKS_FOR_ERRORS = 50_000
_MOST_CHARACTERS_COPIED = 20_000_000
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=128 * 1024, dfa_size_limit=128 * 1024)
_KEPT = 128

_TOO_LARGE = "is too large to be checked against its schema."
_MORE = "has more that is wrong than is listed here."
_DOES_NOT_FIT = "does not fit its schema."
_SOMEWHERE = "does not fit its schema, and is too large to say where."


def check_schema(schema_json: str, *, must_be_object: bool = True) -> str | None:
    """Say what is wrong with a schema as a tool or a skill declares it, or None.

    The input of a tool is an object: its schema says `"type": "object"`. What a skill hands back need not be
    one.
    """
    try:
        schema = _compiled(schema_json).schema
    except SchemaRefused as refused:
        return str(refused)
    if must_be_object and schema.get("type") != "object":
        return 'The schema of an input says `"type": "object"` at its top.'
    return None


def problems(schema_json: str, value: Any) -> list[Problem]:
    """Say where a value (as `canonical_json.parse` reads it) does not fit; empty where it fits.

    At most twenty, each a path (`lines[0].count`, empty for the whole) and a sentence.
    """
    try:
        compiled = _compiled(schema_json)
    except SchemaRefused as refused:
        return [("", f"cannot be checked: its schema cannot be used. {refused}")]
    size = _size(value)
    at_each = compiled.looks_at_each(size.depth)
    if size.places * at_each > MOST_LOOKS:
        return [("", _TOO_LARGE)]
    if compiled.validator.is_valid(value):
        return []
    if size.places * at_each > _MOST_LOOKS_FOR_ERRORS or size.characters * at_each > _MOST_CHARACTERS_COPIED:
        return [("", _SOMEWHERE)]
    found = list(dict.fromkeys(in_words(compiled.validator.iter_errors(value), most=MOST_PROBLEMS + 1)))
    if not found:
        return [("", _DOES_NOT_FIT)]
    return found if len(found) <= MOST_PROBLEMS else [*found[: MOST_PROBLEMS - 1], ("", _MORE)]


def told(first: str, whole: str, found: Sequence[Problem]) -> str:
    """Write problems as one text for the model (R4): a first line, then one for each. `whole`: all of the value."""
    return "\n".join([first, *(f"- {path or whole}: {sentence}" for path, sentence in found)])


@dataclass(frozen=True, slots=True)
class _Compiled:
    schema: dict[str, Any]
    validator: jsonschema_rs.Validator
    looks_by_depth: list[int]

    def looks_at_each(self, depth: int) -> int:
        """Bound the looks at any one place of an input that is so deep."""
        return self.looks_by_depth[min(depth, len(self.looks_by_depth) - 1)]


@lru_cache(maxsize=_KEPT)
def _compiled(schema_json: str) -> _Compiled:
    """Raises `SchemaRefused`."""
    try:
        schema = canonical_json.parse(schema_json, limit_bytes=MOST_SCHEMA_BYTES)
    except canonical_json.JsonProblem as problem:
        raise SchemaRefused(str(problem)) from None
    if not isinstance(schema, dict):
        raise SchemaRefused("A schema is a JSON object.")
    looks = looks_by_depth(schema, canonical_json.MOST_DEEP)
    if looks[0] > MOST_LOOKS:
        raise SchemaRefused("Its references branch so often that no input could be checked against it.")
    try:
        validator = jsonschema_rs.Draft202012Validator(
            schema, offline=True, validate_formats=False, mask="this", pattern_options=_PATTERNS
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as wrong:
        raise SchemaRefused(_what_is_wrong(wrong)) from None
    return _Compiled(schema, validator, looks)


def _what_is_wrong(wrong: jsonschema_rs.ValidationError | jsonschema_rs.ReferencingError) -> str:
    if isinstance(wrong, jsonschema_rs.ReferencingError):
        return f"A reference of the schema leads nowhere: {wrong.message[:300]}."
    if isinstance(wrong.kind, jsonschema_rs.ValidationErrorKind.Format):
        told = [(path_of(wrong), "is no pattern, or a large one, or has look-around or back-references.")]
    else:
        told = in_words([wrong], most=1) or [("", wrong.message[:300])]
    path, sentence = told[0]
    return f"The schema itself is wrong: {path or 'it'} {sentence}"


class _Size(NamedTuple):
    places: int
    depth: int
    characters: int


def _size(value: object) -> _Size:
    """Count an input's objects, arrays and values, how deep they lie, and the characters of its texts."""
    places = characters = 0
    depth = -1
    level = [value]
    while level:
        places += len(level)
        depth += 1
        characters += sum(len(part) for part in level if isinstance(part, str))
        level = list(_parts(level))
    return _Size(places, depth, characters)


def _parts(level: list[object]) -> Iterator[object]:
    for value in level:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
