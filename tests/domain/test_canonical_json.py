"""One form for what is equal: runtime.md R6.3, settled 9, scenario 10."""

import json
import math
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.canonical_json import JsonProblem, canonical, encode, parse

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "canonical_json.json").read_text())

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("vector", VECTORS["canonical"], ids=lambda vector: vector["text"][:30])
def test_published_texts_have_their_canonical_form(vector: dict[str, str]) -> None:
    assert canonical(vector["text"]) == vector["canonical"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["text"][:30])
def test_json_that_two_readers_could_take_for_two_things_is_refused(vector: dict[str, str]) -> None:
    """Settled 9: refused with a sentence that says what is wrong."""
    with pytest.raises(JsonProblem) as refused:
        parse(vector["text"])
    assert vector["says"] in str(refused.value)
    assert refused.value.reason == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_doubles_are_written_as_rfc_8785_lists_them(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert encode(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_written_as_ecmascript_writes_it(value: float) -> None:
    assert encode(value) == _ecmascript(value)
    assert float(encode(value)) == value


@given(values)
def test_the_canonical_form_is_its_own_canonical_form(value: Any) -> None:
    text = encode(value)
    assert canonical(text) == text


@given(values, st.randoms(use_true_random=False))
def test_equal_values_have_one_form_however_they_are_written(value: Any, chance: random.Random) -> None:
    """Scenario 10: key order, escapes and white space make no difference."""
    assert canonical(_written_somehow(value, chance)) == encode(value)


@given(values)
def test_the_canonical_form_says_the_same(value: Any) -> None:
    assert _doubles(parse(encode(value))) == _doubles(value)


@given(st.integers(min_value=-(10**300), max_value=10**300))
def test_integers_keep_their_digits(value: int) -> None:
    """R6.3: where RFC 8785 would round."""
    assert canonical(str(value)) == str(value)


@given(st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1))
def test_a_number_has_one_form_with_and_without_a_fraction(value: int) -> None:
    """Scenario 10: `1`, `1.0` and `1e0` are one number, and so are `0` and `-0`."""
    assert {canonical(f"{value}"), canonical(f"{value}.0"), canonical(f"{value}e0")} == {str(value)}


@given(st.text(alphabet='[]{}",:0123456789.eE+-\\untrufalsd \n', max_size=30))
def test_a_text_is_read_as_everybody_reads_it_or_refused(text: str) -> None:
    """Nothing but `JsonProblem` comes out of any text."""
    try:
        value = parse(text)
    except JsonProblem:
        return
    assert value == json.loads(text)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_a_hundred_deep_is_taken_and_one_more_is_not(opened: str, closed: str) -> None:
    """R12."""
    taken = opened * 100 + "1" + closed * 100
    assert canonical(taken) == taken
    with pytest.raises(JsonProblem, match="deeper than 100"):
        parse(opened * 101 + "1" + closed * 101)


def test_the_deepest_text_neither_exhausts_the_stack_nor_is_encoded() -> None:
    deep: Any = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(JsonProblem, match="deeper than 100"):
        encode(deep)
    with pytest.raises(JsonProblem, match="deeper than 100"):
        parse("[" * 1_000_000)


def test_brackets_in_texts_do_not_make_it_deep() -> None:
    text = json.dumps(["[" * 500, '"[{' * 500, "\\" * 501, {"{" * 200: 1}], separators=(",", ":"))
    assert canonical(text) == text


def test_brackets_side_by_side_do_not_make_it_deep() -> None:
    text = "[" + ",".join(["[]", "{}"] * 500) + "]"
    assert canonical(text) == text


def test_text_past_the_callers_limit_is_refused_by_its_bytes() -> None:
    """R12: the limit counts bytes, not letters."""
    assert parse('"éé"', limit_bytes=6) == "éé"
    with pytest.raises(JsonProblem, match="6 bytes of JSON, and 5 is the most"):
        parse('"éé"', limit_bytes=5)


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**309, "\ud83d", {"\ude00": 1}, {1: 1}, {1, 2}, b"x"])
def test_a_value_that_json_cannot_say_is_not_encoded(value: Any) -> None:
    with pytest.raises(JsonProblem):
        encode(value)


def _written_somehow(value: Any, chance: random.Random) -> str:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, shuffled(item)) for key, item in value.items()]
            chance.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    indent, ascii_only = chance.choice([None, 0, 3]), chance.random() < 0.5
    return json.dumps(shuffled(value), ensure_ascii=ascii_only, indent=indent)


def _doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles(item) for item in value]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _ecmascript(value: float) -> str:
    """Number::toString of ECMAScript, step by step, from the shortest digits."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + _ecmascript(-value)
    _, digits, power = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(power, int)
    s, k = "".join(map(str, digits)), len(digits)
    n = k + power
    if k <= n <= 21:
        return s + "0" * (n - k)
    if 0 < n <= 21:
        return f"{s[:n]}.{s[n:]}"
    if -6 < n <= 0:
        return "0." + "0" * -n + s
    sign = "+" if n > 0 else "-"
    return f"{s[0]}{'.' + s[1:] if k > 1 else ''}e{sign}{abs(n - 1)}"
