"""Checks of requests: every wrong field is named at once, and nothing is written before (`runtime.md` R12)."""

from __future__ import annotations

import re

from service_kit.errors import InvalidField
from service_kit.identity import is_account

MOST_TEXT_BYTES = 1024 * 1024
MOST_REQUEST_ID_BYTES = 256

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class Fields:
    """The fields of one request that are wrong, by path, as far as they were looked at."""

    def __init__(self) -> None:
        self.wrong: list[tuple[str, str]] = []

    def refuse(self, path: str, sentence: str) -> None:
        """Say what is wrong with a field."""
        self.wrong.append((path, sentence))

    def name(self, path: str, name: str) -> str:
        """Check a name of an agent, a tool or a skill."""
        if not _NAME.fullmatch(name):
            self.refuse(path, "A name has 1 to 64 letters, digits, `_`, `-` and `.`.")
        return name

    def own_id(self, path: str, text: str) -> str:
        """Check an id that the caller chose (settled 16)."""
        if text and not _ID.fullmatch(text):
            self.refuse(path, "An id has 1 to 128 letters, digits, `_`, `-`, `.` and `:`.")
        return text

    def account(self, path: str, text: str) -> str:
        """Check the id of an account, where one is given."""
        if text and not is_account(text):
            self.refuse(path, "An account's id has 1 to 128 letters, digits, `_`, `-`, `.`, `:` and `@`; no role's.")
        return text

    def needed(self, path: str, text: str) -> str:
        """Check that a field was given."""
        if not text:
            self.refuse(path, "This is needed.")
        return text

    def text(self, path: str, text: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
        """Check a text's size, and that it can be stored."""
        if "\0" in text:
            self.refuse(path, "A text cannot hold NUL.")
        elif len(text.encode()) > most_bytes:
            self.refuse(path, f"At most {most_bytes} bytes.")
        return text

    def request_id(self, text: str) -> str:
        """Check a `request_id` (settled 16)."""
        return self.text("request_id", text, MOST_REQUEST_ID_BYTES)

    def done(self) -> None:
        """Raise `InvalidField` with every field that is wrong."""
        if self.wrong:
            raise InvalidField(self.wrong)
