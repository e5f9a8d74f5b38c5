"""The words of guidance: normalised once, as they are taken, and refused where they could hide something (T3).

Published with vectors in docs/guidance.md.

Invariants: what `normalised` returns is its own normal form; it is one line of at most 600 code points that a person
sees whole; the model is sent exactly it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

MOST_CHARACTERS = 600
MOST_NAMED = 5

# Unicode's White_Space: what is trimmed at both ends.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u2028\u2029\u202f\u205f\u3000"
)
ZERO_WIDTH_NON_JOINER, ZERO_WIDTH_JOINER = "\u200c", "\u200d"

# Control characters, format characters (zero-width ones, bidi controls, BOM, soft hyphen), line and paragraph
# separators, and halves of surrogate pairs.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
# Letters and marks without any width: grapheme joiner, Hangul fillers, inherent Khmer vowels.
_WITHOUT_WIDTH = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_TAGS_AND_SELECTORS = range(0xE0000, 0xE1000)
_VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0x180B, 0x1810))
# Scripts whose letters join or stack: Arabic, Syriac, Thaana, N'Ko, Mandaic; Indic from Devanagari to Sinhala; Tibetan,
# Myanmar; Khmer; Mongolian; Arabic's presentation forms.
_JOINING_SCRIPTS = (
    range(0x0600, 0x08FF + 1),
    range(0x0900, 0x0DFF + 1),
    range(0x0F00, 0x109F + 1),
    range(0x1780, 0x18AF + 1),
    range(0xA840, 0xA87F + 1),
    range(0xFB50, 0xFDFF + 1),
    range(0xFE70, 0xFEFE + 1),
)
# Where emoji stand that are joined to others: 👩‍🌾, ❤️‍🔥, 🏴‍☠️.
_PICTOGRAPHS = (
    range(0x2190, 0x21FF + 1),
    range(0x2300, 0x23FF + 1),
    range(0x25A0, 0x27BF + 1),
    range(0x2B00, 0x2BFF + 1),
    range(0x1F000, 0x1FAFF + 1),
)
_EMOJI_SELECTOR = "\ufe0f"


class WordsProblem(ValueError):
    """Guidance that is refused. `str(problem)` says what is wrong with it, and where."""


def normalised(guidance: str) -> str:
    """Return guidance as it is kept and sent: NFC, without white space around it, runs of spaces within kept.

    Raises `WordsProblem`: nothing in it, more than 600 code points, or characters that are refused, naming each code
    point with its place (1 is the first that is left).
    """
    text = unicodedata.normalize("NFC", guidance).strip(WHITE_SPACE)
    if not text:
        raise WordsProblem("This is needed.")
    refused = list(_refused(text))
    if refused:
        named = "; ".join(f"{_name(text[place])} at character {place + 1}" for place in refused[:MOST_NAMED])
        more = f"; and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
        raise WordsProblem(f"Guidance is one line without hidden characters. It has {named}{more}.")
    if len(text) > MOST_CHARACTERS:
        raise WordsProblem(f"At most {MOST_CHARACTERS} characters; this has {len(text)}.")
    return text


def _refused(text: str) -> Iterator[int]:
    for place, letter in enumerate(text):
        if letter in (ZERO_WIDTH_JOINER, ZERO_WIDTH_NON_JOINER):
            if not _is_needed(text, place):
                yield place
        elif _is_selector(letter):
            # One varies the letter before it; a second one varies nothing.
            if place == 0 or _is_selector(text[place - 1]):
                yield place
        elif (
            unicodedata.category(letter) in _REFUSED_CATEGORIES
            or letter in _WITHOUT_WIDTH
            or ord(letter) in _TAGS_AND_SELECTORS
        ):
            yield place


def _is_selector(letter: str) -> bool:
    # U+180E, the vowel separator among Mongolian's selectors, is a format character, and refused as such.
    return letter != "\u180e" and any(ord(letter) in block for block in _VARIATION_SELECTORS)


def _is_needed(text: str, place: int) -> bool:
    """Say whether a joiner stands where a script or an emoji needs it."""
    if place == 0:
        return False
    before = text[place - 1]
    if any(ord(before) in block for block in _JOINING_SCRIPTS):
        return unicodedata.category(before)[0] in "LM"
    if text[place] == ZERO_WIDTH_NON_JOINER or place + 1 == len(text):
        return False
    if before == _EMOJI_SELECTOR and place > 1:
        before = text[place - 2]
    return _is_pictograph(before) and _is_pictograph(text[place + 1])


def _is_pictograph(letter: str) -> bool:
    return any(ord(letter) in block for block in _PICTOGRAPHS)


def _name(letter: str) -> str:
    name = unicodedata.name(letter, "")
    return f"U+{ord(letter):04X}" + (f" {name}" if name else "")
