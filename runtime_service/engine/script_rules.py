"""Scripts of models: a YAML list of rules, read and checked whole.

A script that is wrong is refused with every wrong field at once, each named by its rule's index. What is read
is what will be said: a text with half a surrogate pair, a key twice, or an input that is no JSON is wrong
here, not later. The form stands in `docs/scripted-models.md`.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from runtime_service.domain import canonical_json
from runtime_service.domain.problems import RuntimeProblem
from runtime_service.engine.expressions import ExpressionProblem, Program, compile_expression

VARIABLES: Mapping[str, Any] = {
    "system": str,
    "messages": list[dict[str, str]],
    "step": int,
    "results": list[str],
}
"""What `when` is over."""


class ScriptProblem(RuntimeProblem):
    """A script cannot be used. `fields` name what is wrong: `[2].when`, `[2].calls[0].input`."""

    reason: ClassVar[str] = "INVALID_FIELD"


def _wrong(sentence: object) -> PydanticCustomError:
    return PydanticCustomError("script", "{sentence}", {"sentence": str(sentence)})


def _letters(text: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _wrong("holds half a surrogate pair. Write the letter itself, or \\U… with its eight digits.")
    return text


def _condition(value: object) -> Program:
    text = str(value).lower() if isinstance(value, bool) else value
    if not isinstance(text, str):
        raise _wrong("is not a text. Put the expression in quotes.")
    try:
        program = compile_expression(text, VARIABLES)
    except ExpressionProblem as problem:
        raise _wrong(problem) from None
    if program.returns not in ("bool", "dyn"):
        raise _wrong(f"gives {program.returns}, not true or false.")
    return program


def _json_input(value: dict[Any, Any]) -> dict[Any, Any]:
    try:
        canonical_json.encode(value)
    except canonical_json.JsonProblem as problem:
        raise _wrong(f"is no JSON: {problem} A date, and a word like `on`, wants quotes.") from None
    return value


_Text = Annotated[str, AfterValidator(_letters)]
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class ScriptedCall(BaseModel):
    """A call of a rule. Of `input` and `input_json` at most one; neither is `{}`."""

    model_config = _STRICT
    tool: Annotated[_Text, Field(min_length=1)]
    input: Annotated[dict[Any, Any], AfterValidator(_json_input)] | None = None
    input_json: _Text | None = None
    id: _Text | None = None

    @model_validator(mode="after")
    def _one_input(self) -> "ScriptedCall":
        if self.input is not None and self.input_json is not None:
            raise _wrong("has both `input` and `input_json`. Keep one.")
        return self

    @property
    def written(self) -> str:
        """The input as the model writes it: `input_json` to the letter, `input` in its keys' order."""
        if self.input_json is not None:
            return self.input_json
        return json.dumps(self.input or {}, ensure_ascii=False, separators=(",", ":"))


class Failure(BaseModel):
    """How a rule fails, as a provider does."""

    model_config = _STRICT
    status: Annotated[int, Field(ge=400, le=599)]
    retry_after: Annotated[float, Field(ge=0, le=86_400)] | None = None
    times: Annotated[int, Field(ge=1)] | None = None


class Rule(BaseModel):
    """One rule: when it holds, what it says. Without `when` it holds always."""

    model_config = _STRICT
    when: Annotated[Program, BeforeValidator(_condition)] | None = None
    say: _Text | None = None
    calls: list[ScriptedCall] = []
    delay_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    fail: Failure | None = None

    @model_validator(mode="after")
    def _does_something(self) -> "Rule":
        if not self.answers and self.fail is None:
            raise _wrong("does nothing. It wants `say`, `calls` or `fail`.")
        return self

    @property
    def answers(self) -> bool:
        """Whether it says anything once it no longer fails."""
        return self.say is not None or bool(self.calls)

    def holds(self, over: Mapping[str, object]) -> bool:
        """Say whether the rule is for this request. Raises `ExpressionProblem`."""
        if self.when is None:
            return True
        value = self.when.evaluate(over)
        if not isinstance(value, bool):
            raise ExpressionProblem(f"`{self.when.text[:200]}` gives no bool.")
        return value


_RULES: TypeAdapter[list[Rule]] = TypeAdapter(list[Rule])


def read_script(text: str) -> tuple[Rule, ...]:
    """Read a script's rules. Raises `ScriptProblem` with everything that is wrong."""
    try:
        written = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as problem:
        raise ScriptProblem(f"It is no YAML: {' '.join(str(problem).split())[:500]}") from None
    if not isinstance(written, list) or not written:
        raise ScriptProblem("A script is a list of rules, and this is none. Begin each rule with `- `.")
    try:
        return tuple(_RULES.validate_python(written))
    except ValidationError as problem:
        fields = [(_path(error["loc"]), _sentence(error)) for error in problem.errors(include_url=False)]
        said = " ".join(f"{path}: {sentence}" for path, sentence in fields)
        raise ScriptProblem(said[:4000], fields=fields) from None


def _path(places: tuple[int | str, ...]) -> str:
    return "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)


def _sentence(error: Any) -> str:
    match error["type"]:
        case "script":
            return str(error["msg"])
        case "extra_forbidden":
            return "is no field that a script has."
        case "missing":
            return "is missing."
        case "string_type":
            return "is no text. A number, and a word like `yes`, wants quotes."
        case _:
            return f"{error['msg'].replace('Input should', 'should')}."


class _Loader(yaml.SafeLoader):
    """YAML, but a key twice is an error: the first would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value} stands twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)
