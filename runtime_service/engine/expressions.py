"""CEL expressions, type-checked as they are set.

The one door to `cel-expr-python`, which hands an evaluation error back as a value: here it is raised, so that
nobody takes it for an answer.

- An expression that compiles has the variables it names, with the types it uses them by.
- What is evaluated ends: CEL has no loops but over what it is given, and its patterns take linear time. How
  many loops stand in one another is the author's.
- A program may be evaluated by several threads at once.
"""

import builtins
from collections.abc import Mapping
from typing import Any, ClassVar, get_args, get_origin

from cel_expr_python import cel

from runtime_service.domain.problems import RuntimeProblem

MOST_CHARACTERS = 10_000

_TYPES = {
    bool: cel.Type.BOOL,
    int: cel.Type.INT,
    float: cel.Type.DOUBLE,
    str: cel.Type.STRING,
    object: cel.Type.DYN,
}


class ExpressionProblem(RuntimeProblem):
    """An expression does not compile, or could not be evaluated over what it was given."""

    reason: ClassVar[str] = "INVALID_FIELD"


class Program:
    """A compiled expression."""

    def __init__(self, text: str, expression: Any) -> None:
        self.text = text
        self.returns: str = expression.return_type().name().lower()
        self._expression = expression

    def evaluate(self, values: Mapping[str, object]) -> object:
        """Say what the expression gives as a plain Python value. Raises `ExpressionProblem`."""
        try:
            value = self._expression.eval(data=values)
        except (RuntimeError, TypeError, ValueError) as wrong:
            raise ExpressionProblem(f"`{_cut(self.text)}` cannot be evaluated: {_cut(str(wrong))}") from None
        if value.type() == cel.Type.ERROR:
            raise ExpressionProblem(f"`{_cut(self.text)}` cannot be evaluated: {_cut(value.value())}")
        return value.plain_value()


def compile_expression(text: str, variables: Mapping[str, Any]) -> Program:
    """Compile an expression over variables of the given Python types (`str`, `list[str]`, `object` for any).

    Raises `ExpressionProblem` with what is wrong and where: a syntax error, an unknown name, types that do
    not go together.
    """
    if len(text) > MOST_CHARACTERS:
        raise ExpressionProblem(f"This expression is longer than {MOST_CHARACTERS} characters.")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ExpressionProblem("Half a surrogate pair is no character. Write the letter itself, or `\\U…`.")
    env = cel.NewEnv(variables={name: _type(kind) for name, kind in variables.items()})
    try:
        return Program(text, env.compile(text))
    except RuntimeError as wrong:
        raise ExpressionProblem(_readable(str(wrong))) from None


def _type(kind: Any) -> Any:
    parts = [_type(part) for part in get_args(kind)]
    match get_origin(kind):
        case builtins.list:
            return cel.Type.List(*parts)
        case builtins.dict:
            return cel.Type.Map(*parts)
        case _:
            return _TYPES[kind]


def _readable(told: str) -> str:
    """Take the library's frame off: `INVALID_ARGUMENT: ERROR: <input>:1:6: … [INVALID_ARGUMENT]`."""
    told = told.removeprefix("INVALID_ARGUMENT: ").removesuffix("[INVALID_ARGUMENT]").strip()
    told = told.replace("ERROR: <input>:", "").replace(" (in container '')", "")
    return _cut(" ".join(line for line in told.splitlines() if not line.startswith(" |")), 600)


def _cut(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
