"""D8, scenario 28: text that hides something from the approver is shown escaped, and bounded."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tutelage.shown import shown, shown_json


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, ünïcode, 漢字, 🌱", "plain, ünïcode, 漢字, 🌱"),
        ("a\u202eb", "a\\u{202e}b"),
        ("a\u200bb\u2060c\ufeff", "a\\u{200b}b\\u{2060}c\\u{feff}"),
        ("a\x00b\x1b[31mc\x7f", "a\\u{0}b\\u{1b}[31mc\\u{7f}"),
        ("a\nb\tc\rd", "a\\nb\\u{9}c\\u{d}d"),
        ("a\u00a0b\u3000c", "a\\u{a0}b\\u{3000}c"),
        ("a\u2028b", "a\\u{2028}b"),
        ("\ud800", "\\u{d800}"),
        ("\U000e0041", "\\u{e0041}"),
        ("\u3164", "\\u{3164}"),
        ("pаypal", "p\\u{430}ypal"),
        ("слово и word", "слово и word"),
        ("a" + " " * 10_000 + "b", "a\\u{20}×10000b"),
        ("a" + "\n" * 10_000 + "b", "a\\u{a}×10000b"),
        ("a" + " " * 100 + "b", "a\\u{20}×100b"),
    ],
)
def test_what_hides_something_is_shown_by_its_number(text: str, seen: str) -> None:
    assert shown(text) == seen


def test_a_long_text_is_bounded_and_says_so() -> None:
    assert shown("x" * 5_000) == "x" * 2_000 + "… (3,000 characters more)"
    assert shown("x" * 50, 10) == "x" * 10 + "… (40 characters more)"


@given(st.text())
def test_nothing_that_hides_is_left(text: str) -> None:
    seen = shown(text, lines=True)

    assert all(unicodedata.category(each) not in {"Cc", "Cf", "Cs"} for each in seen if each != "\n")


@pytest.mark.parametrize(
    ("input_json", "seen"),
    [
        (
            '{"name":"todo.md","n":1.0e0,"big":9007199254740993}',
            'name: "todo.md"\nn: 1.0e0\nbig: 9007199254740993',
        ),
        ('{"text":"one\\ntwo"}', "text: \n    one\n    two"),
        ('{"text":"a\\u202eb"}', 'text: "a\\u{202e}b"'),
        ('{"na\\u202eme":[true,null,{"a":"b"}]}', 'na\\u{202e}me: [true, null, {"a": "b"}]'),
        ("{}", "{}"),
        ("[1,2]", "[1, 2]"),
        ("not json\u202e", "not json\\u{202e}"),
    ],
)
def test_json_is_shown_by_its_names_and_as_it_was_written(input_json: str, seen: str) -> None:
    assert shown_json(input_json) == seen


def test_a_line_of_the_text_cannot_pass_for_a_field() -> None:
    """What stands in a text of several lines stands deeper than the names."""
    seen = shown_json('{"text":"x\\nname: other","name":"real"}').split("\n")

    assert [line for line in seen if line.startswith("name:")] == ['name: "real"']
