"""Moments as text, in the one form that the journal, its chain, stored values and the errors use.

RFC 3339 in UTC with six digits and `Z`: `2026-03-01T09:30:00.000000Z`. One moment has one text.
"""

from datetime import UTC, datetime


def rfc3339(time: datetime) -> str:
    """Write a moment. Raises `ValueError` for one without a zone, which is no moment."""
    if time.tzinfo is not UTC:
        if time.tzinfo is None:
            raise ValueError("a time without a zone is no moment")
        time = time.astimezone(UTC)
    return time.isoformat(timespec="microseconds")[:-6] + "Z"


def from_rfc3339(text: str) -> datetime:
    """Read what `rfc3339` wrote."""
    return datetime.fromisoformat(text)
