"""Values of the domain for tests: one of each by hand, and any of each for properties."""

import enum
import types
from datetime import UTC, datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from runtime_service.domain.journal import KINDS
from runtime_service.domain.principals import Principal, PrincipalKind
from runtime_service.domain.rules import (
    ApprovalRule,
    Decider,
    Expression,
    Level,
    NothingAsked,
    RuleKind,
    RuleSetting,
    Setting,
    SettingInForce,
)
from runtime_service.domain.turns import Turn, TurnId, TurnState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def person(account: str, **more: str) -> Principal:
    """A person who signed in."""
    return Principal(account, PrincipalKind.PERSON, **more)


def a_turn(turn_id: str = "t1", **more: Any) -> Turn:
    """A turn of a conversation that is free to be taken."""
    usual: dict[str, Any] = {
        "tenant": "default",
        "root_id": TurnId(turn_id),
        "conversation_id": "c1",
        "number": 0,
        "agent": "answer",
        "agent_version": "1",
        "skill": "",
        "input": "Go on.",
        "work_for": person("gus"),
        "given_by": person("gus"),
        "scope": "",
        "settings": (),
        "state": TurnState.READY,
        "create_time": NOON,
        "update_time": NOON,
    }
    return Turn(id=TurnId(turn_id), **(usual | more))


texts = st.text(max_size=12)
numbers = st.integers(0, 2**64 - 1)
times = st.datetimes(timezones=st.just(UTC))


@st.composite
def _rules(draw: st.DrawFn) -> ApprovalRule:
    kind = draw(st.sampled_from(RuleKind))
    some_names = st.lists(st.sampled_from(["refund", "answer/refund", "look", "answer"]), max_size=3)
    return ApprovalRule(
        kind=kind,
        tools_alone=kind is RuleKind.CHANGES and draw(st.booleans()),
        names=tuple(draw(some_names)) if kind is RuleKind.NAMES else (),
        put_to=tuple(draw(st.lists(st.sampled_from(["ann", "ben", "role:supervises"]), max_size=2))),
        approvals_needed=draw(st.integers(0, 4)),
        not_the_giver=draw(st.booleans()),
        expires_after_seconds=draw(st.sampled_from([0, 60, 3600])),
    )


rules = _rules()
some_settings: st.SearchStrategy[Setting] = st.one_of(
    st.builds(RuleSetting, rules),
    st.builds(Expression, texts),
    st.builds(Decider, texts),
    st.just(NothingAsked()),
)
settings_in_force = st.builds(
    SettingInForce, level=st.sampled_from(Level), setting=some_settings, only_adds=st.booleans()
)


def _any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a field, by its type."""
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    if get_origin(hint) is tuple:
        return st.lists(_any_of(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*map(_any_of, get_args(hint)))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return st.builds(hint, **{name: _any_of(field) for name, field in get_type_hints(hint).items()})


_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: numbers,
    bool: st.booleans(),
    datetime: times,
    type(None): st.none(),
    ApprovalRule: rules,
    SettingInForce: settings_in_force,
}

# One strategy for each kind of record.
whats = {kind: _any_of(cls) for kind, cls in KINDS.items()}
