"""CEL expressions: checked as they are set, and an error is never taken for an answer."""

from typing import Any

import pytest

from runtime_service.engine.expressions import ExpressionProblem, compile_expression

VARIABLES: dict[str, Any] = {"step": int, "texts": list[str], "rows": list[dict[str, str]], "input": object}


@pytest.mark.parametrize(
    ("text", "returns", "value"),
    [
        ("step == 1", "bool", True),
        ("step + 1", "int", 2),
        ("texts[0]", "string", "a"),
        ('rows.exists(r, r.role == "user")', "bool", True),
        ("input.lines[1].sum > 10", "bool", True),
        ("input", "dyn", {"lines": [{}, {"sum": 12}]}),
    ],
)
def test_an_expression_gives_a_plain_value(text: str, returns: str, value: object) -> None:
    program = compile_expression(text, VARIABLES)

    assert program.returns == returns
    assert value == program.evaluate(
        {"step": 1, "texts": ["a"], "rows": [{"role": "user"}], "input": {"lines": [{}, {"sum": 12}]}}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step ==", "Syntax error"),
        ("stepp == 1 || textss == []", "'textss'"),
        ('step == "a"', "no matching overload"),
        ("", "Syntax error"),
        ("(" * 100 + "1" + ")" * 100, "limit"),
        ("1" * 10_001, "10000"),
        ('"\ud83c"', "surrogate"),
    ],
)
def test_an_expression_that_is_wrong_is_refused_as_it_is_set(text: str, said: str) -> None:
    with pytest.raises(ExpressionProblem, match=said):
        compile_expression(text, VARIABLES)


@pytest.mark.parametrize(
    "text", ["texts[5] == 'a'", "1 / step == 1", "rows[0].none == 'x'", "input.none", "size(input) == 1"]
)
def test_what_cannot_be_evaluated_is_raised(text: str) -> None:
    program = compile_expression(text, VARIABLES)

    with pytest.raises(ExpressionProblem, match="cannot be evaluated"):
        program.evaluate({"step": 0, "texts": [], "rows": [{}], "input": 3})


def test_a_value_that_is_missing_or_of_another_type_is_raised() -> None:
    program = compile_expression("step == 1", VARIABLES)

    for values in ({}, {"step": "1"}, {"step": 2**70}):
        with pytest.raises(ExpressionProblem):
            program.evaluate(values)
