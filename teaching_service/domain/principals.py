"""Who somebody is, as it was when something was recorded under their name.

Both values come from a verified token, never from a field of a request. They are facts: erasure leaves them.
"""

import enum
from dataclasses import dataclass
from datetime import datetime


class PrincipalKind(enum.Enum):
    """What stands behind an account."""

    UNSPECIFIED = "UNSPECIFIED"
    PERSON = "PERSON"
    AGENT = "AGENT"
    SERVICE = "SERVICE"


@dataclass(frozen=True, slots=True)
class Principal:
    """One account. `on_behalf_of` is the person for whom a program or an agent acted; empty: nobody."""

    id: str
    kind: PrincipalKind = PrincipalKind.UNSPECIFIED
    display_name: str = ""
    on_behalf_of: str = ""

    @property
    def is_person(self) -> bool:
        """A person who signed in and speaks for themselves: the only one who may teach (T2.2)."""
        return self.kind is PrincipalKind.PERSON and not self.on_behalf_of


@dataclass(frozen=True, slots=True)
class Proof:
    """How an account was proven, kept beside what was decided under its name."""

    issuer: str = ""
    key_id: str = ""
    token_sha256: str = ""
    auth_time: datetime | None = None
    acr: str = ""
