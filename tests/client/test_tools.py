"""Python functions as tools: what is declared, what is taken in, what is handed back."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field
from tutelage.runtime.v1.effects_pb2 import EFFECTS_CHANGES, EFFECTS_READS, EFFECTS_UNSPECIFIED
from tutelage.tools import CHANGES, READS, Tool, ToolError, error_text, output_of, tool


class Place(BaseModel):
    bed: int
    row: float = 1.5


@tool(effects=CHANGES, timeout=2.5)
def plant(
    name: Annotated[str, Field(description="The common name first.", min_length=1)],
    place: Place,
    how: Literal["deep", "shallow"] = "deep",
    *,
    json: list[int] | None = None,
) -> dict[str, Any]:
    """Plant something.

    It can be dug up again.
    """
    return {"name": name, "bed": place.bed, "how": how}


def test_the_declaration_says_what_the_function_says() -> None:
    declared = plant.declaration()
    schema = json.loads(declared.input_schema_json)

    assert declared.name == "plant"
    assert declared.description == "Plant something.\n\nIt can be dug up again."
    assert declared.effects == EFFECTS_CHANGES
    assert declared.timeout.ToTimedelta().total_seconds() == 2.5
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["name", "place"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["name"] == {
        "description": "The common name first.",
        "minLength": 1,
        "type": "string",
    }
    assert schema["properties"]["how"] == {"default": "deep", "enum": ["deep", "shallow"], "type": "string"}


@pytest.mark.parametrize(
    ("input_json", "fits"),
    [
        ('{"name": "mint", "place": {"bed": 1}}', True),
        ('{"name": "mint", "place": {"bed": 1}, "how": "shallow", "json": [1]}', True),
        ('{"name": "", "place": {"bed": 1}}', False),
        ('{"name": "mint"}', False),
        ('{"name": "mint", "place": {"bed": "one"}}', False),
        ('{"name": "mint", "place": {"bed": 1}, "colour": "green"}', False),
    ],
)
def test_the_schema_and_the_function_take_the_same(input_json: str, fits: bool) -> None:
    """The runtime checks by the schema; what passes it must not fail here for its form."""
    validator = jsonschema_rs.validator_for(plant.input_schema)

    assert validator.is_valid(json.loads(input_json)) is fits
    if fits:
        plant.arguments(input_json)
    else:
        with pytest.raises(ToolError):
            plant.arguments(input_json)


def test_arguments_come_as_the_types_say_and_defaults_are_the_functions() -> None:
    arguments = plant.arguments('{"name": "mint", "place": {"bed": 3}}')

    assert arguments == {"name": "mint", "place": Place(bed=3)}
    assert plant(**arguments) == {"name": "mint", "bed": 3, "how": "deep"}


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ToolError) as caught:
        plant.arguments('{"name": 1, "place": {"bed": 1}, "colour": "green"}')

    assert "name: " in str(caught.value)
    assert "colour: " in str(caught.value)


def test_effects_left_out_stay_undeclared() -> None:
    """A1: the rules, not the client, treat what is undeclared as a change."""

    @tool
    def look() -> str:
        """Look."""
        return ""

    @tool(effects=READS)
    def read() -> str:
        """Read."""
        return ""

    assert look.declaration().effects == EFFECTS_UNSPECIFIED
    assert read.declaration().effects == EFFECTS_READS
    assert not look.declaration().HasField("timeout")


def unhinted(name) -> str:  # type: ignore[no-untyped-def]
    """Do it."""
    return str(name)


def undocumented(name: str) -> str:
    return name


def starred(*names: str) -> str:
    """Do it."""
    return "".join(names)


@pytest.mark.parametrize("function", [unhinted, undocumented, starred])
def test_what_cannot_be_declared_is_told_at_once(function: Any) -> None:
    with pytest.raises(TypeError, match=function.__name__):
        Tool(function)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ü", '"ü"'),
        (None, "null"),
        (Place(bed=1), '{"bed":1,"row":1.5}'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        (2**70, "1180591620717411303424"),
    ],
)
def test_output_becomes_json_text(value: object, text: str) -> None:
    assert output_of(value) == text


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", object(), b"\xff", {"a": object()}, "x" * (1024 * 1024)]
)
def test_output_that_is_not_json_or_too_large_is_an_error(value: object) -> None:
    """R12, scenario 25."""
    with pytest.raises(ToolError):
        output_of(value)


def test_an_error_is_told_in_bounded_words_without_a_traceback() -> None:
    assert error_text(ValueError("no note of that name")) == "ValueError: no note of that name"
    assert error_text(ValueError()) == "ValueError"
    assert len(error_text(ValueError("x" * 100_000))) == 2_000
    assert error_text(ValueError("\ud800")).encode()
