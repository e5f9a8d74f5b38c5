"""Inputs and their schemas: what does not fit is told field by field, and no check runs away."""

import json
import time
from typing import Any

import pytest

from runtime_service.domain import canonical_json
from runtime_service.engine.schemas import MOST_PROBLEMS, check_schema, problems, told


def an_object(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


def branching(steps: int, keyword: str) -> str:
    """A few lines of JSON that are looked at 2 to the power of `steps` times."""
    shapes: dict[str, Any] = {
        f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(steps)
    }
    shapes[f"a{steps}"] = {"type": "string"}
    return json.dumps({"type": "object", "$defs": shapes, "properties": {"x": {"$ref": "#/$defs/a0"}}})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"object"}',
        an_object(a={"type": "string", "pattern": "^[a-z]+$", "format": "email"}),
        '{"type":"object","$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}},"properties":{"n":{"$ref":"#/$defs/n"}}}',
        '{"type":"object","$schema":"http://json-schema.org/draft-07/schema#","properties":{"$ref":{"type":"string"}}}',
    ],
)
def test_a_schema_of_an_object_is_taken(schema: str) -> None:
    assert check_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"type":"string"}', '"type": "object"'),
        ('{"type":["object","null"]}', '"type": "object"'),
        ('{"type":"object","type":"object"}', "stands twice"),
        (an_object(a={"type": "objekt"}), "properties.a.type must be one of"),
        (an_object(a={"pattern": "("}), "properties.a.pattern is no pattern"),
        (an_object(a={"pattern": "(a)\\1"}), "back-references"),
        (an_object(a={"pattern": "(?=a)b"}), "look-around"),
        (an_object(a={"pattern": "((a{1,1000}){1,1000}){1,1000}"}), "a large one"),
        (an_object(a={"$ref": "http://127.0.0.1:1/schema"}), "leads out of the schema"),
        (an_object(a={"$ref": "file:///etc/passwd"}), "leads out of the schema"),
        (an_object(a={"$ref": "#/$defs/none"}), "leads nowhere"),
        (an_object(a={"$ref": 3}), "leads out of the schema"),
        (an_object(a={"$dynamicRef": "#a"}), "$dynamicRef"),
        (an_object(a={"$id": "http://127.0.0.1:1/", "type": "string"}), "$id"),
        ('{"type":"object","$id":"::::"}', "cannot be followed"),
        ('{"type":"object","allOf":[{"$ref":"#"}]}', "leads back to itself"),
        (
            json.dumps({"type": "object", "patternProperties": {f"^{n}": {} for n in range(65)}}),
            "64 patterns",
        ),
        (an_object(a={"description": "x" * 65_536}), "65536 is the most"),
        ('{"items":' * 101 + "true" + "}" * 101, "deeper than 100"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_with_what_is_wrong(schema: str, said: str) -> None:
    assert said in (check_schema(schema) or "taken")


def test_what_a_skill_hands_back_need_be_no_object() -> None:
    assert check_schema('{"type":"array"}', must_be_object=False) is None


def test_each_field_that_does_not_fit_is_told_at_once_with_its_path() -> None:
    """R4, R12: what is wrong, field by field."""
    schema = json.dumps(
        {
            "type": "object",
            "required": ["to", "sum"],
            "additionalProperties": False,
            "properties": {
                "to": {"type": "string", "minLength": 3},
                "sum": {"type": "integer", "maximum": 100},
                "lines": {"type": "array", "items": {"enum": ["red", "blue"]}},
                "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "by": {"anyOf": [{"type": "object", "required": ["name"]}, {"type": "null"}]},
            },
        }
    )

    found = problems(schema, {"to": "x", "lines": ["red", "green"], "when": "now", "by": {"id": 1}, "odd name": 1})

    assert sorted(found) == [
        ('["odd name"]', "is no field of this input."),
        ("by.name", "is missing."),
        ("lines[1]", 'must be one of "red", "blue".'),
        ("sum", "is missing."),
        ("to", "must have at least 3 characters."),
        ("when", "must be an integer or null, and is a text."),
    ]


def test_what_fits_has_no_problems_and_integers_keep_their_digits() -> None:
    schema = an_object(n={"type": "integer", "minimum": 9007199254740993})

    assert problems(schema, canonical_json.parse('{"n": 9007199254740993}')) == []
    assert problems(schema, canonical_json.parse('{"n": 9007199254740992}')) != []


def test_a_field_where_there_are_none_does_not_fit() -> None:
    """The library names no field here; the input must not pass for all that."""
    schema = '{"type":"object","additionalProperties":false}'

    assert problems(schema, {"a": 1}) == [("", "must have no fields.")]
    assert problems(schema, {}) == []


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "string"},
        {"const": 7},
        {"enum": [1, 2]},
        {"not": {}},
        {"minimum": 10},
        {"maximum": 1},
        {"exclusiveMinimum": 10},
        {"exclusiveMaximum": 1},
        {"multipleOf": 7},
        {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        {"oneOf": [{"minimum": 10}, {"minimum": 11}]},
        {"anyOf": [{"type": "string"}, {"minimum": 11}]},
        False,
    ],
)
def test_every_kind_of_misfit_of_a_number_says_something(keywords: Any) -> None:
    [(path, sentence)] = problems(an_object(x=keywords), {"x": 5})

    assert path == "x"
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    "keywords",
    [
        {"items": False},
        {"prefixItems": [True], "items": False},
        {"unevaluatedItems": False},
        {"minItems": 3},
        {"maxItems": 1},
        {"uniqueItems": True},
        {"contains": {"type": "string"}},
    ],
)
def test_every_kind_of_misfit_of_an_array_says_something(keywords: Any) -> None:
    assert problems(an_object(x=keywords), {"x": [1, 1]})


@pytest.mark.parametrize(
    "keywords",
    [
        {"unevaluatedProperties": False},
        {"minProperties": 3},
        {"maxProperties": 0},
        {"propertyNames": {"maxLength": 2}},
        {"propertyNames": False},
        {"dependentRequired": {"long": ["other"]}},
        {"patternProperties": {"^l": {"type": "string"}}},
    ],
)
def test_every_kind_of_misfit_of_an_object_says_something(keywords: Any) -> None:
    assert problems(an_object(x=keywords), {"x": {"long": 1}})


def test_no_more_than_twenty_problems_are_told_and_the_last_says_so() -> None:
    found = problems(an_object(x={"items": {"type": "string"}}), {"x": [1] * 500})

    assert len(found) == MOST_PROBLEMS == 20
    assert found[-1] == ("", "has more that is wrong than is listed here.")


def test_what_a_field_holds_is_never_told_and_no_problem_is_long() -> None:
    secret = "hunter2" * 40
    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"pattern": "^" + "x" * 1000 + "$"},
                "c": {"enum": ["y" * 1000] * 1 + ["z"]},
                "d": {"format": "email", "maxLength": 3},
                "e": {"anyOf": [{"maxLength": 1}, {"maxLength": 2}]},
                "f": {"not": {}},
                "g": {"const": 1},
            },
            "additionalProperties": False,
        }
    )

    found = problems(schema, {**dict.fromkeys("abcdefg", secret), "q" * 5000: secret})

    assert {path for path, _ in found} >= set("abcdefg")
    assert all(len(path) <= 300 and len(sentence) <= 300 for path, sentence in found)
    assert secret not in str(found)


def test_the_model_is_told_one_text() -> None:
    assert told(
        "The input does not fit, so this call did not run:",
        "the input",
        [("a.b", "is missing."), ("", "must have no fields.")],
    ) == ("The input does not fit, so this call did not run:\n- a.b: is missing.\n- the input: must have no fields.")


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("steps", [13, 17, 20, 40, 400])
def test_branches_that_meet_again_do_not_take_the_services_time(keyword: str, steps: int) -> None:
    """By itself the library takes 40 s at 20 steps, and forever at 40."""
    schema = branching(steps, keyword)
    begun = time.monotonic()

    refused = check_schema(schema)
    found = problems(schema, {"x": 1})

    assert refused is None or "branch" in refused
    assert found
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("levels", [2, 12, 20, 30, 98])
def test_a_schema_that_refers_to_itself_twice_does_not_take_the_services_time(levels: int) -> None:
    twice = {"properties": {"a": {"allOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]}}}
    schema = json.dumps({"type": "object", "$defs": {"n": twice}, "properties": {"a": {"$ref": "#/$defs/n"}}})
    begun = time.monotonic()

    found = problems(schema, nested(levels))

    assert found == [] if levels <= 12 else found in ([], [("", "is too large to be checked against its schema.")])
    assert time.monotonic() - begun < 5


def test_what_was_left_unevaluated_does_not_take_the_services_time() -> None:
    """Each level goes through all below it twice; 20 levels take the library 18 s."""
    shape: dict[str, Any] = {"properties": {"a": True}}
    for _ in range(30):
        shape = {"anyOf": [shape], "unevaluatedProperties": False}

    assert "branch" in (check_schema(json.dumps({"type": "object", **shape})) or "taken")


def test_a_tree_is_checked_to_its_leaves() -> None:
    node = {
        "type": "object",
        "properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}, "v": {"type": "integer"}},
    }
    schema = json.dumps({"type": "object", "$defs": {"n": node}, "properties": {"root": {"$ref": "#/$defs/n"}}})
    value: Any = {"v": "leaf"}
    for _ in range(90):
        value = {"l": value, "r": {"v": 1}}

    [(path, sentence)] = problems(schema, {"root": value})

    assert path.startswith("root.l.l.l")
    assert sentence == "must be an integer, and is a text."


def test_patterns_take_linear_time() -> None:
    """A backtracking engine never comes back from this one."""
    schema = an_object(x={"pattern": "^(a+)+$"})
    begun = time.monotonic()

    assert problems(schema, {"x": "a" * 250_000 + "!"}) == [("x", "must match the pattern `^(a+)+$`.")]
    assert time.monotonic() - begun < 5


def test_a_large_input_with_much_that_is_wrong_is_refused_without_a_list() -> None:
    schema = an_object(x={"items": {"type": "string"}})
    begun = time.monotonic()

    assert problems(schema, {"x": [1] * 120_000}) == [("", "does not fit its schema, and is too large to say where.")]
    assert problems(schema, {"x": ["a"] * 60_000}) == []
    assert time.monotonic() - begun < 5


def test_an_input_of_a_schema_that_cannot_be_used_does_not_fit() -> None:
    assert "cannot be used" in problems("{", {})[0][1]
