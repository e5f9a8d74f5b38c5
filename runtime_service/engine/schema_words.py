"""What is wrong with an input, said to a model: a path and a sentence for each field.

Names of fields and words of the schema may stand in a sentence, cut where they are long; what a field holds
never does.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

Problem = tuple[str, str]

MOST_CHARACTERS = 300
_MOST_NAME = 60
_NO_FIELD = "is no field of this input."


def in_words(errors: Iterable[ValidationError], most: int) -> list[Problem]:
    """Say the first errors in words, in their order."""
    said = (problem for error in errors for problem in _said(error))
    return [(_cut(path), _cut(sentence)) for path, sentence in islice(said, most)]


def path_of(error: ValidationError) -> str:
    """Write where an error is, as `lines[0].count`."""
    return _cut(_path(error.instance_path))


def _said(error: ValidationError) -> Iterator[Problem]:
    path = _path(error.instance_path)
    kind = error.kind
    match kind:
        case ValidationErrorKind.Required():
            yield _path([*error.instance_path, kind.property]), "is missing."
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            for name in kind.unexpected:
                yield _path([*error.instance_path, name]), _NO_FIELD
        case ValidationErrorKind.Type():
            yield path, f"must be {_any_of(kind.types)}, and is {_kind_of(error.instance)}."
        case ValidationErrorKind.Enum():
            yield path, f"must be one of {_shown(kind.options)}."
        case ValidationErrorKind.Constant():
            yield path, f"must be {_shown([kind.expected_value])}."
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            yield from _branches(error, kind.context)
        case ValidationErrorKind.OneOfMultipleValid():
            yield path, "fits more than one of the forms of which it must be exactly one."
        case ValidationErrorKind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            yield path, "must have no fields."
        case ValidationErrorKind.FalseSchema():
            yield path, "must not be there."
        case ValidationErrorKind.Pattern():
            yield path, f"must match the pattern `{kind.pattern}`."
        case ValidationErrorKind.PropertyNames():
            name = str(kind.error.instance)
            for _, sentence in _said(kind.error):
                yield _path([*error.instance_path, name]), f"has a name that is not allowed: it {sentence}"
        case ValidationErrorKind.Referencing():
            yield path, f"has a reference that cannot be followed: {kind.error}"
        case ValidationErrorKind.Not():
            yield path, "has a form that is excluded."
        case _:
            yield path, _other(kind)


def _other(kind: Any) -> str:
    match kind:
        case ValidationErrorKind.Minimum():
            return f"must be at least {kind.limit}."
        case ValidationErrorKind.Maximum():
            return f"must be at most {kind.limit}."
        case ValidationErrorKind.ExclusiveMinimum():
            return f"must be more than {kind.limit}."
        case ValidationErrorKind.ExclusiveMaximum():
            return f"must be less than {kind.limit}."
        case ValidationErrorKind.MultipleOf():
            return f"must be a multiple of {kind.multiple_of}."
        case ValidationErrorKind.MinLength():
            return f"must have at least {kind.limit} characters."
        case ValidationErrorKind.MaxLength():
            return f"must have at most {kind.limit} characters."
        case ValidationErrorKind.MinItems():
            return f"must have at least {kind.limit} items."
        case ValidationErrorKind.MaxItems():
            return f"must have at most {kind.limit} items."
        case ValidationErrorKind.MinProperties():
            return f"must have at least {kind.limit} fields."
        case ValidationErrorKind.MaxProperties():
            return f"must have at most {kind.limit} fields."
        case ValidationErrorKind.UniqueItems():
            return "must not have the same item twice."
        case ValidationErrorKind.Contains():
            return "has too few or too many items of the kind that it must contain."
        case ValidationErrorKind.AdditionalItems() | ValidationErrorKind.UnevaluatedItems():
            return "has more items than are allowed."
        case _:
            return f"does not fit its schema ({kind.name})."


def _branches(error: ValidationError, branches: list[list[ValidationError]]) -> Iterator[Problem]:
    """Say what is wrong in the one branch that is of the value's own kind; else what kinds there are."""
    here = error.instance_path
    kinds = [_kinds_alone(branch, here) for branch in branches]
    meant = [branch for branch, types in zip(branches, kinds, strict=True) if types is None]
    if not meant:
        types = dict.fromkeys(name for names in kinds for name in names or ())
        yield _path(here), f"must be {_any_of(list(types))}, and is {_kind_of(error.instance)}."
    elif len(meant) == 1:
        for inner in meant[0]:
            yield from _said(inner)
    else:
        yield _path(here), "fits none of the forms that it may have."


def _kinds_alone(branch: list[ValidationError], here: list[str | int]) -> list[str] | None:
    """Say which kinds of value a branch is for, where that alone is wrong with it."""
    for error in branch:
        if isinstance(error.kind, ValidationErrorKind.Type) and error.instance_path == here:
            return error.kind.types
    return None


_KINDS = {
    "string": "a text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def _any_of(kinds: Iterable[str]) -> str:
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case None:
            return "null"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def _shown(options: list[Any]) -> str:
    shown = [_name(json.dumps(option, ensure_ascii=False)) for option in options[:20]]
    return ", ".join(shown) + (", …" if len(options) > 20 else "")


def _path(steps: Iterable[str | int]) -> str:
    """Write `lines[0].count`; a name that would not read well stands in brackets, quoted."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier():
            path += f".{_name(step)}"
        else:
            path += f"[{_name(json.dumps(step, ensure_ascii=False))}]"
    return path.removeprefix(".")


def _name(text: str) -> str:
    return text if len(text) <= _MOST_NAME else f"{text[:_MOST_NAME]}…"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
