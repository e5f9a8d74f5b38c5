"""Who is asked before a tool runs: settings, the rules in them, and what they come to together.

Every setting says a verdict on a call, run < ask < refuse. The most specific level that is set holds; a
floor, the agents below the root and what somebody who does not supervise set only add, and the greatest
verdict of all holds (R2.1, R2.2). So no caller loosens what others set. Functions (expressions and
deciders) are asked elsewhere: what they said is handed in. Nothing here reads guidance (R2.8).
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from runtime_service.domain.addresses import names_call
from runtime_service.domain.effects import Effects
from runtime_service.domain.principals import Principal

_ROLE = "role:"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


class RuleKind(enum.Enum):
    """Which calls a rule names. UNSPECIFIED: none; a function asks, and the rest of the rule says whom."""

    UNSPECIFIED = "UNSPECIFIED"
    CHANGES = "CHANGES"
    ALL = "ALL"
    NAMES = "NAMES"


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """A rule that people answer. `put_to` empty: whom the work is for, who gave it, who supervises.

    `tools_alone` is for CHANGES, `names` for NAMES. `approvals_needed` 0 is 1; `expires_after_seconds` 0 is
    never.
    """

    kind: RuleKind
    tools_alone: bool = False
    names: tuple[str, ...] = ()
    put_to: tuple[str, ...] = ()
    approvals_needed: int = 1
    not_the_giver: bool = False
    expires_after_seconds: int = 0

    def expires_at(self, asked: datetime) -> datetime | None:
        """Return until when a question by this rule may be answered."""
        return asked + timedelta(seconds=self.expires_after_seconds) if self.expires_after_seconds else None


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """Whatever the rule names waits for a person."""

    rule: ApprovalRule


@dataclass(frozen=True, slots=True)
class Expression:
    """A CEL expression is asked about each call that changes things."""

    text: str


@dataclass(frozen=True, slots=True)
class Decider:
    """A host's function is asked about each call that changes things, by the name it is registered under."""

    name: str


@dataclass(frozen=True, slots=True)
class NothingAsked:
    """Nothing is asked."""


Setting = RuleSetting | Expression | Decider | NothingAsked


class Level(enum.Enum):
    """Where a setting stands. The most specific first."""

    TURN = "turn"
    CONVERSATION = "conversation"
    AGENT = "agent"
    TENANT = "tenant"
    SERVICE = "service"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """One level's setting. `only_adds`: of an agent below the root, or by somebody who does not supervise."""

    level: Level
    setting: Setting
    only_adds: bool = False


class Verdict(enum.IntEnum):
    """What a setting says to a call. UNSPECIFIED is taken as REFUSE wherever it is said."""

    UNSPECIFIED = 0
    RUN = 1
    ASK = 2
    REFUSE = 3


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """What a rule sees of a call. `effects` of an agent are those of R1.2."""

    tool: str
    path: str
    effects: Effects
    is_agent: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What a function said, and why not."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What all settings come to. `rule` has all levels that ask taken together; None: nobody is asked.

    `asked_by` is who asks or refuses, with its level: `changes (conversation)`. `put_to` of the rule is as
    given: `resolve_put_to` fills it.
    """

    verdict: Verdict
    rule: ApprovalRule | None = None
    asked_by: str = ""
    reason: str = ""


def in_force(settings: Sequence[SettingInForce]) -> tuple[int, ...]:
    """Name the settings that hold, by index: the most specific one, and all that only add, in that order.

    Settings of one level keep their order, so the deepest agent's goes before the root's.
    """
    order = sorted(range(len(settings)), key=lambda index: _LEVELS.index(settings[index].level))
    base = next((index for index in order if not _adds(settings[index])), None)
    return tuple(index for index in order if index == base or _adds(settings[index]))


def functions_asked(settings: Sequence[SettingInForce], call: JudgedCall) -> tuple[int, ...]:
    """Name the functions to ask about a call before `rule_on`, by index: none where it reads (R2.5)."""
    if not call.effects.changes:
        return ()
    return tuple(index for index in in_force(settings) if isinstance(settings[index].setting, Expression | Decider))


def rule_on(settings: Sequence[SettingInForce], call: JudgedCall, said: Mapping[int, Said] | None = None) -> Ruling:
    """Judge a call by all settings that hold (R2.1 to R2.3).

    `said` has what the functions said, by their index in `settings`. A function that was to be asked and said
    nothing refuses.
    """
    judged = [
        (settings[index], _judge(settings[index].setting, call, index, said or {})) for index in in_force(settings)
    ]
    verdict = max((each.verdict for _, each in judged), default=Verdict.RUN)
    if verdict is Verdict.RUN:
        return Ruling(verdict)
    speak = [(setting, each.reason) for setting, each in judged if each.verdict is verdict]
    if verdict is Verdict.REFUSE:
        setting, reason = speak[0]
        return Ruling(verdict, None, _in_words(setting), reason)
    asking = [setting for setting, _ in speak]
    whose = _whose_put_to(asking)
    return Ruling(verdict, _together(whose, asking), _in_words(whose))


def resolve_put_to(rule: ApprovalRule, work_for: Principal, given_by: Principal) -> tuple[str, ...]:
    """Say to whom a rule puts a call: account ids and `role:NAME`, never empty (settled 12)."""
    named = rule.put_to or (work_for.id, given_by.id, f"{_ROLE}supervises")
    return tuple(dict.fromkeys(one for one in named if one))


def rule_problems(rule: ApprovalRule, field_path: str, given_by: Principal | None = None) -> list[tuple[str, str]]:
    """Find what is wrong with a rule as it is set, by field: above all that it can never be met (R2.6).

    `given_by`, where it is known already, counts for not-the-giver.
    """
    problems: list[tuple[str, str]] = []
    if rule.kind is RuleKind.UNSPECIFIED:
        problems.append((field_path, "Say which calls it names: `changes`, `all` or `names`."))
    if rule.kind is RuleKind.NAMES:
        problems += _name_problems(rule.names, f"{field_path}.names.names")
    for place, one in enumerate(rule.put_to):
        if one in ("", _ROLE):
            problems.append((f"{field_path}.put_to[{place}]", "Name an account by its id, or a role as `role:NAME`."))
    return problems + _reach_problems(rule, field_path, given_by)


def rule_fields(rule: ApprovalRule) -> dict[str, Any]:
    """Give a rule as the contract's fields, without what is empty: what is saved, hashed and recorded."""
    fields: dict[str, Any] = {}
    match rule.kind:
        case RuleKind.CHANGES:
            fields["changes"] = {"tools_alone": True} if rule.tools_alone else {}
        case RuleKind.ALL:
            fields["all"] = {}
        case RuleKind.NAMES:
            fields["names"] = {"names": list(rule.names)} if rule.names else {}
        case RuleKind.UNSPECIFIED:
            pass
    if rule.put_to:
        fields["put_to"] = list(rule.put_to)
    if rule.approvals_needed:
        fields["approvals_needed"] = rule.approvals_needed
    if rule.not_the_giver:
        fields["not_the_giver"] = True
    if rule.expires_after_seconds:
        fields["expires_after_seconds"] = rule.expires_after_seconds
    return fields


def rule_of(fields: Mapping[str, Any]) -> ApprovalRule:
    """Read what `rule_fields` gave."""
    kind = next((kind for kind in RuleKind if kind.value.lower() in fields), RuleKind.UNSPECIFIED)
    return ApprovalRule(
        kind=kind,
        tools_alone=fields.get("changes", {}).get("tools_alone", False),
        names=tuple(fields.get("names", {}).get("names", ())),
        put_to=tuple(fields.get("put_to", ())),
        approvals_needed=fields.get("approvals_needed", 0),
        not_the_giver=fields.get("not_the_giver", False),
        expires_after_seconds=fields.get("expires_after_seconds", 0),
    )


def setting_fields(setting: Setting) -> dict[str, Any]:
    """Give a setting as the contract's fields."""
    match setting:
        case RuleSetting(rule):
            return {"rule": rule_fields(rule)}
        case Expression(text):
            return {"expression": text}
        case Decider(name):
            return {"decider": name}
        case NothingAsked():
            return {"nothing": {}}


def setting_of(fields: Mapping[str, Any]) -> Setting:
    """Read what `setting_fields` gave. Raises `ValueError` for a kind that this release does not know."""
    match fields:
        case {"rule": rule}:
            return RuleSetting(rule_of(rule))
        case {"expression": text}:
            return Expression(text)
        case {"decider": name}:
            return Decider(name)
        case {"nothing": _}:
            return NothingAsked()
        case _:
            raise ValueError(f"no setting is {', '.join(fields) or 'empty'}")


_LEVELS = tuple(Level)


def _adds(setting: SettingInForce) -> bool:
    return setting.only_adds or setting.level is Level.FLOOR


def _judge(setting: Setting, call: JudgedCall, index: int, said: Mapping[int, Said]) -> Said:
    match setting:
        case NothingAsked():
            return Said(Verdict.RUN)
        case RuleSetting(rule):
            return Said(Verdict.ASK if _names(rule, call) else Verdict.RUN)
        case Expression() | Decider():
            if not call.effects.changes:
                return Said(Verdict.RUN)
            heard = said.get(index, Said(Verdict.REFUSE, "Nobody answered for the rule that decides this."))
            return heard if heard.verdict else Said(Verdict.REFUSE, heard.reason)


def _names(rule: ApprovalRule, call: JudgedCall) -> bool:
    match rule.kind:
        case RuleKind.ALL:
            return True
        case RuleKind.CHANGES:
            return call.effects.changes and not (rule.tools_alone and call.is_agent)
        case RuleKind.NAMES:
            return any(names_call(name, call.path) for name in rule.names)
        case RuleKind.UNSPECIFIED:
            return False


def _whose_put_to(asking: Sequence[SettingInForce]) -> SettingInForce:
    """Choose whose `put_to` holds: the floor's, else the most specific one's (R2.3).

    A caller's setting that only adds does not take a question away from those whom another one names: that
    would loosen what others set (R2.2).
    """
    floor = next((setting for setting in asking if setting.level is Level.FLOOR), None)
    if floor:
        return floor
    if not _of_a_caller(asking[0]):
        return asking[0]
    return next((setting for setting in asking if _rule(setting).put_to and not _of_a_caller(setting)), asking[0])


def _of_a_caller(setting: SettingInForce) -> bool:
    return setting.only_adds and setting.level in (Level.TURN, Level.CONVERSATION)


def _rule(setting: SettingInForce) -> ApprovalRule:
    """The rule by which a setting asks. A function's question goes to whom an empty `put_to` means."""
    match setting.setting:
        case RuleSetting(rule):
            return rule
        case _:
            return ApprovalRule(RuleKind.UNSPECIFIED)


def _together(whose: SettingInForce, asking: Sequence[SettingInForce]) -> ApprovalRule:
    rules = [_rule(setting) for setting in asking]
    return replace(
        _rule(whose),
        approvals_needed=max(1, *(rule.approvals_needed for rule in rules)),
        not_the_giver=any(rule.not_the_giver for rule in rules),
        expires_after_seconds=min(
            (rule.expires_after_seconds for rule in rules if rule.expires_after_seconds), default=0
        ),
    )


def _in_words(setting: SettingInForce) -> str:
    match setting.setting:
        case RuleSetting(rule):
            what = rule.kind.value
        case other:
            what = type(other).__name__
    return f"{what.lower()} ({setting.level.value})"


def _name_problems(names: Sequence[str], field_path: str) -> list[tuple[str, str]]:
    if not names:
        return [(field_path, "Name at least one tool or path: a rule without names is never met.")]
    return [
        (f"{field_path}[{place}]", "Name a tool, a path or a path's ending: `refund`, `answer/refund`.")
        for place, name in enumerate(names)
        if not _NAME.fullmatch(name)
    ]


def _reach_problems(rule: ApprovalRule, field_path: str, given_by: Principal | None) -> list[tuple[str, str]]:
    if not rule.put_to or any(one.startswith(_ROLE) for one in rule.put_to):
        return []
    accounts = set(rule.put_to)
    if rule.not_the_giver and given_by:
        accounts -= {given_by.id, given_by.on_behalf_of}
        if not accounts:
            return [(f"{field_path}.put_to", "It is put to the giver alone, who may not say yes to it.")]
    if rule.approvals_needed > len(accounts):
        return [
            (
                f"{field_path}.approvals_needed",
                f"It needs {rule.approvals_needed} different people, and {len(accounts)} may say yes to it.",
            )
        ]
    return []
