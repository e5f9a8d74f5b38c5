"""JSON in one form, so that what is equal hashes equal.

RFC 8785, but integers keep their digits (R6.3): keys in the order of their UTF-16 units, no white space,
the fewest escapes, numbers as ECMAScript writes them.

- A number written without fraction and exponent is an integer, and stays as written: `9007199254740993`.
- Any other number is a double: `1.0` and `1e0` are `1`, `1e21` is `1e+21`.
- Zero has one form: `-0`, `-0.0` and `0` are `0`.
- Texts are compared to the letter: NFC and NFD differ.
- Refused, since two readers could take it for two things: a key twice, half a surrogate pair, a number
  beyond a double. Refused too: deeper than 100.

Canonical texts are for hashing and matching. What is shown and run is the text as received.
"""

import json
import math
import re
from collections.abc import Iterable
from json.encoder import encode_basestring as _quoted
from typing import Any, ClassVar

from runtime_service.domain.problems import RuntimeProblem

MOST_DEEP = 100

_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 309  # of an integer that a double can hold


class JsonProblem(RuntimeProblem):
    """A text is not JSON, or JSON of a kind that is refused.

    The sentence is told to the model; to a caller it comes as the `INVALID_FIELD` of the field that held
    the text.
    """

    reason: ClassVar[str] = "INVALID_FIELD"


def canonical(text: str) -> str:
    """Bring JSON text into its canonical form. Raises `JsonProblem`."""
    return encode(parse(text))


def parse(text: str, *, limit_bytes: int | None = None) -> Any:
    """Read JSON text: integers as `int`, other numbers as `float`. Raises `JsonProblem`, and nothing else."""
    size = len(text) if text.isascii() else len(_utf8(text))
    if limit_bytes is not None and size > limit_bytes:
        raise JsonProblem(f"This is {size} bytes of JSON, and {limit_bytes} is the most.")
    _refuse_depth(text)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as wrong:
        where = f"line {wrong.lineno}, column {wrong.colno}"
        raise JsonProblem(f"This is not JSON: {wrong.msg} at {where}.") from None
    if _SURROGATE_ESCAPE.search(text):
        _utf8(json.dumps(value, ensure_ascii=False))
    return value


def encode(value: object) -> str:
    """Write a value's canonical form. Raises `JsonProblem` for what JSON cannot say or `parse` refuses."""
    out: list[str] = []
    _write(value, out.append, MOST_DEEP)
    text = "".join(out)
    if not text.isascii():
        _utf8(text)
    return text


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise JsonProblem("A text holds half a surrogate pair, which is no character.") from None


def _refuse_depth(text: str) -> None:
    """Look before the scanner does, so that no text can exhaust the stack."""
    if text.count("[") + text.count("{") <= MOST_DEEP:
        return
    depth = 0
    for piece in _STRING_OR_BRACKET.findall(text):
        if piece in "[{":
            depth += 1
            if depth > MOST_DEEP:
                raise JsonProblem(f"This JSON is nested deeper than {MOST_DEEP}.")
        elif piece in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonProblem(f"The key {_quoted(_twice(key for key, _ in pairs))} stands twice in one object.")
    return found


def _twice(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("no key stands twice")


def _integer(text: str) -> int:
    if len(text) >= _MOST_DIGITS and math.isinf(float(text)):
        raise JsonProblem(f"A number is beyond a double: {text[:20]}…")
    return int(text)


def _double(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonProblem(f"A number is beyond a double: {text[:20]}")
    return value


def _constant(text: str) -> Any:
    raise JsonProblem(f"This is not JSON: {text} is no number.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_double, parse_constant=_constant
)


def _write(value: object, put: Any, room: int) -> None:
    match value:
        case str():
            put(_quoted(value))
        case True:
            put("true")
        case False:
            put("false")
        case None:
            put("null")
        case int():
            put(_digits(value))
        case float():
            put(_number(value))
        case dict():
            _write_object(value, put, room)
        case list() | tuple():
            _write_array(value, put, room)
        case _:
            raise JsonProblem(f"JSON has no {type(value).__name__}.")


def _write_object(value: dict[Any, object], put: Any, room: int) -> None:
    if not room:
        raise JsonProblem(f"This JSON is nested deeper than {MOST_DEEP}.")
    before = "{"
    for key in _in_order(value):
        put(f"{before}{_quoted(key)}:")
        _write(value[key], put, room - 1)
        before = ","
    put("}" if value else "{}")


def _write_array(value: list[object] | tuple[object, ...], put: Any, room: int) -> None:
    if not room:
        raise JsonProblem(f"This JSON is nested deeper than {MOST_DEEP}.")
    before = "["
    for item in value:
        put(before)
        _write(item, put, room - 1)
        before = ","
    put("]" if value else "[]")


def _in_order(keys: dict[Any, object]) -> list[str]:
    """Sort by UTF-16 units, which is the order of code points but for what lies beyond the surrogates."""
    if not all(isinstance(key, str) for key in keys):
        raise JsonProblem("A key of an object is not a text.")
    if all(key.isascii() for key in keys):
        return sorted(keys)
    return sorted(keys, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _digits(value: int) -> str:
    if value.bit_length() > 1023:
        try:
            float(value)
        except OverflowError:
            raise JsonProblem("A number is beyond a double.") from None
    return str(value)


def _number(value: float) -> str:
    """Write a double as ECMAScript does: the fewest digits, an exponent from 1e21 and below 1e-6."""
    if not math.isfinite(value):
        raise JsonProblem(f"JSON has no {value}.")
    if value == 0:
        return "0"
    text = repr(value)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, power = text.partition("e")
    exponent = int(power)
    sign = "-" if value < 0 else ""
    digits = mantissa.replace(".", "").removeprefix("-")
    if 0 <= exponent < 21:
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{mantissa}e{exponent:+d}"
