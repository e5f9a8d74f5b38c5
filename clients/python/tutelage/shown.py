"""Text from models, tools and callers, made fit to be shown to a person.

What could hide something is shown by its number, `\\u{202e}`: control and format characters (bidi overrides,
zero-width letters), surrogates, odd spaces, and letters that look like those of the script beside them. Long
runs of blanks are counted, and all of it is bounded. It is for eyes alone: what runs stays as it was written.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MOST_CHARACTERS = 2_000
# Other categories are shown as they stand: letters, marks, numbers, punctuation, symbols.
HIDING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# They take up room and show nothing, though their category is a letter's or a mark's.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
LOOK_ALIKE_SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")

_WORD = re.compile(r"\w+")
_RUN = re.compile(r"([ \n\t])\1{8,}")


def shown(text: str, most: int = MOST_CHARACTERS, *, lines: bool = False) -> str:
    """Return `text` as a person may see it: `most` characters of it. With `lines` it keeps its lines."""
    # First, so that a thousand spaces push nothing out of sight.
    text = _RUN.sub(lambda run: f"{_by_number(run[1])}×{len(run[0])}", text)
    left_out = max(0, len(text) - most)
    text = text[:most]
    text = _WORD.sub(lambda word: _unmixed(word[0]), text)
    text = "".join(_character(character, lines) for character in text)
    return f"{text}… ({left_out:,} characters more)" if left_out else text


def shown_json(input_json: str, most: int = MOST_CHARACTERS) -> str:
    """Return a JSON object as `name: value` lines: texts by their characters, numbers as written."""
    try:
        value = json.loads(input_json, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal)
    except (ValueError, RecursionError):
        return shown(input_json, most)
    if not isinstance(value, dict) or not value:
        return shown(_written(value), most)
    return "\n".join(f"{shown(name, most)}: {_shown_value(each, most)}" for name, each in value.items())


class _Literal(str):
    """A number, as it was written."""

    __slots__ = ()


def _shown_value(value: Any, most: int) -> str:
    if isinstance(value, str) and "\n" in value:
        return "\n    " + shown(value, most, lines=True).replace("\n", "\n    ")
    return shown(_written(value), most)


def _written(value: Any) -> str:
    match value:
        case _Literal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{_quoted(name)}: {_written(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(_written(each) for each in value) + "]"
        case str():
            return _quoted(value)
        case _:
            return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _character(character: str, lines: bool) -> str:
    if character == "\n":
        return "\n" if lines else "\\n"
    category = unicodedata.category(character)
    odd_space = category == "Zs" and character != " "
    return _by_number(character) if category in HIDING or odd_space or character in BLANK else character


def _unmixed(word: str) -> str:
    """Show by number the letters of a word that look like the Latin ones beside them."""
    if word.isascii() or not any(character.isascii() and character.isalpha() for character in word):
        return word
    return "".join(
        _by_number(character) if unicodedata.name(character, "").startswith(LOOK_ALIKE_SCRIPTS) else character
        for character in word
    )


def _by_number(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"
