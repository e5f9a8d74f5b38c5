"""Python functions as tools.

    @tool(effects=CHANGES)
    def write_note(name: str, text: Annotated[str, Field(description="The whole new text.")]) -> str:
        "Replace a note's text."

The type hints become the input's JSON Schema, the docstring is what the model reads, and what the function
returns becomes JSON text. A tool that does not say what it does to the world counts as one that changes it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NotRequired, cast, get_type_hints, overload

from google.protobuf.duration_pb2 import Duration
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from tutelage.runtime.v1 import tools_pb2
from tutelage.runtime.v1.effects_pb2 import EFFECTS_CHANGES, EFFECTS_READS, EFFECTS_UNSPECIFIED, Effects

READS = EFFECTS_READS
CHANGES = EFFECTS_CHANGES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OUTPUT_BYTES = 1024 * 1024
ERROR_CHARACTERS = 2_000

Function = Callable[..., Any]


class ToolError(Exception):
    """A tool did not return what can be sent. `str(error)` is what the model is told."""


@dataclass(frozen=True, slots=True)
class Call:
    """The call that a tool function runs for. Hand `idempotency_key` on to what the tool calls."""

    call_id: str
    idempotency_key: str
    turn_id: str
    address: str
    attempt: int


_current: ContextVar[Call] = ContextVar("tutelage_call")


def current_call() -> Call:
    """Return the call that this function runs for. Raises LookupError outside of one."""
    return _current.get()


class Tool:
    """A function that a host offers. It can still be called like the function it was made of."""

    def __init__(
        self,
        function: Function,
        *,
        effects: Effects.ValueType = EFFECTS_UNSPECIFIED,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.description = inspect.getdoc(function) or ""
        if not self.description:
            raise TypeError(f"{self.name} needs a docstring: it is what the model reads of the tool")
        self.effects = effects
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(function)
        self._input: TypeAdapter[Mapping[str, Any]] = TypeAdapter(_input_of(function))
        self.input_schema = _schema_of(self._input, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def declaration(self) -> tools_pb2.Tool:
        """Return the tool as a host declares it."""
        timeout = None
        if self.timeout is not None:
            timeout = Duration()
            timeout.FromNanoseconds(round(self.timeout * 1e9))
        return tools_pb2.Tool(
            name=self.name,
            description=self.description,
            input_schema_json=json.dumps(self.input_schema, ensure_ascii=False),
            effects=self.effects,
            timeout=timeout,
        )

    def arguments(self, input_json: str) -> Mapping[str, Any]:
        """Read a call's input as the function's arguments. Raises ToolError naming every wrong one."""
        try:
            return self._input.validate_json(input_json)
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
            raise ToolError("The input does not fit. " + "; ".join(wrong)) from None

    def run(self, call: Call, arguments: Mapping[str, Any]) -> str:
        """Run a plain function and return its output as JSON text. Whatever it raises is raised."""
        _current.set(call)
        return output_of(self.function(**arguments))

    async def run_async(self, call: Call, arguments: Mapping[str, Any]) -> str:
        """Run a coroutine function and return its output as JSON text. Whatever it raises is raised."""
        _current.set(call)
        return output_of(await self.function(**arguments))


@overload
def tool(function: Function) -> Tool: ...
@overload
def tool(
    *, effects: Effects.ValueType = EFFECTS_UNSPECIFIED, timeout: float | None = None
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    *,
    effects: Effects.ValueType = EFFECTS_UNSPECIFIED,
    timeout: float | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a function a tool: `@tool`, or `@tool(effects=READS, timeout=5)`, the time in seconds.

    Raises TypeError where a parameter has no type hint or takes no name, or the docstring is missing.
    """

    def made(function: Function) -> Tool:
        return Tool(function, effects=effects, timeout=timeout)

    return made if function is None else made(function)


def output_of(value: object) -> str:
    """Write what a tool returned as JSON text. Raises ToolError where it is none, or too large."""
    try:
        plain = to_jsonable_python(value)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ToolError(f"The tool's output is not JSON: {error}") from None
    if size > OUTPUT_BYTES:
        raise ToolError(f"The tool's output is too large: {size} bytes, {OUTPUT_BYTES} at most")
    return text


def error_text(error: BaseException) -> str:
    """Say in words for the model why a tool failed: no traceback, and bounded."""
    text = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    # What cannot be sent as UTF-8 is shown by its number.
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= ERROR_CHARACTERS else text[: ERROR_CHARACTERS - 1] + "…"


def _input_of(function: Function) -> Any:
    """Make the mapping type of the function's parameters. One with a default may be left out."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: the parameter {name} must be one that is given by name")
        if name not in hints:
            raise TypeError(f"{function.__name__}: the parameter {name} needs a type hint")
        fields[name] = hints[name] if parameter.default is parameter.empty else NotRequired[hints[name]]
    made = cast("Any", TypedDict)("Input", fields)
    made.__pydantic_config__ = ConfigDict(extra="forbid")
    return made


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema_of(input: TypeAdapter[Any], function: Function) -> dict[str, Any]:
    schema = input.json_schema(schema_generator=_Untitled)
    schema.pop("title", None)
    properties = schema.setdefault("properties", {})
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            properties[name].setdefault("default", to_jsonable_python(parameter.default))
    return {"$schema": DIALECT, **schema}
