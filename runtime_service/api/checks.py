"""Checks of requests that are the runtime's own: JSON, and its sizes (`runtime.md` R12)."""

from __future__ import annotations

from runtime_service.domain import canonical_json
from runtime_service.domain.canonical_json import JsonProblem
from service_kit import checks
from service_kit.checks import MOST_TEXT_BYTES

__all__ = ["MOST_INPUT_BYTES", "MOST_REASON_BYTES", "MOST_TEXT_BYTES", "Fields"]

MOST_INPUT_BYTES = 256 * 1024
# What a person writes beside a decision.
MOST_REASON_BYTES = 16 * 1024


class Fields(checks.Fields):
    """The fields of one request that are wrong, by path, as far as they were looked at."""

    def json(self, path: str, text: str, most_bytes: int = MOST_INPUT_BYTES) -> object:
        """Check that a text is JSON that this service takes, and return what it says."""
        try:
            return canonical_json.parse(text, limit_bytes=most_bytes)
        except JsonProblem as problem:
            self.refuse(path, str(problem))
            return None
