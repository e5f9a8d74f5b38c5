"""Checks of requests that are the teaching service's own: guidance, reasons, names (T2.5, T3, `runtime.md` R12)."""

from __future__ import annotations

from service_kit import checks
from teaching_service.domain.words import WordsProblem, normalised

# What a person writes beside a change.
MOST_WHY_CHARACTERS = 4_000
MOST_SCOPE_BYTES = 256
MOST_TASK_ID_BYTES = 4_096


class Fields(checks.Fields):
    """The fields of one request that are wrong, by path, as far as they were looked at."""

    def guidance(self, path: str, text: str) -> str:
        """Check the words of an instruction, and return them normalised (T3)."""
        try:
            return normalised(text)
        except WordsProblem as problem:
            self.refuse(path, str(problem))
            return ""

    def why(self, path: str, text: str, *, needed: bool = False) -> str:
        """Check a reason."""
        if needed and not text.strip():
            self.refuse(path, "This is needed.")
        elif len(text) > MOST_WHY_CHARACTERS:
            self.refuse(path, f"At most {MOST_WHY_CHARACTERS} characters; this has {len(text)}.")
        return self.text(path, text)

    def agent(self, path: str, text: str, *, needed: bool = True) -> str:
        """Check an agent's name."""
        return self.name(path, text) if text or needed else text

    def number(self, path: str, number: int) -> int:
        """Check that a number is not below 0."""
        if number < 0:
            self.refuse(path, "A number from 0 on.")
        return number
