"""Tool hosts: who they are, what they offer, and the sessions that they hold (`runtime.md` R6.6).

Invariants:
- An incarnation is one run of a host's process, of one account. Each `hello` begins its next session
  and ends the one before.
- Only the newest session of an incarnation is ever sent anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from runtime_service.domain.effects import Declaration

CallId = NewType("CallId", str)
Incarnation = NewType("Incarnation", str)


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a host is and what it offers."""

    tenant: str
    account: str
    host: str
    incarnation: Incarnation
    tools: tuple[Declaration, ...]
    capacity: int
    # The calls that it has received and that no `taken` has named yet.
    holding: frozenset[CallId]


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that a host offers, by which declaration."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True)
class Session:
    """The newest session of one incarnation."""

    incarnation: Incarnation
    tenant: str
    account: str
    host: str
    number: int
    process: str
    start_time: datetime
    # When its stream broke, or its process went. None: it runs, as long as its process's lease does.
    end_time: datetime | None = None
    # For replicas that it is not connected to.
    offers: tuple[Offer, ...] = ()
