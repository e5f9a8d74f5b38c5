"""Where in a turn a call stands.

A path is the names from the agent down (`support/answer/refund`); an address is the path with each call's
number within the call above it (`support/answer#2/refund#1`). An address is unique in its turn, a path is
not. Names hold neither `/` nor `#`.
"""

import re
from typing import NewType

Address = NewType("Address", str)

_NUMBER = re.compile(r"#[0-9]+")


def root_address(agent: str) -> Address:
    """Give the address of the agent whose turn it is."""
    return Address(agent)


def below(address: Address, name: str, invocation: int) -> Address:
    """Give the address of the call that `address` makes as its `invocation`: 1, 2, … across every step."""
    return Address(f"{address}/{name}#{invocation}")


def path_of(address: Address) -> str:
    """Give the names alone."""
    return _NUMBER.sub("", address)


def depth_of(address: Address) -> int:
    """Count the calls above: 0 for the root, 1 for what it calls."""
    return address.count("/")


def names_call(rule_name: str, path: str) -> bool:
    """Tell whether a rule's name means the call at `path`: all of it, or its ending, whole names at a time.

    A tool's name alone is the shortest such ending, so it means the tool at any depth (R2.6). It never
    means what that tool calls in its turn.
    """
    return bool(rule_name) and (path == rule_name or path.endswith("/" + rule_name))
