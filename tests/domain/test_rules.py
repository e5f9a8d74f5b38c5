"""Who is asked before a tool runs: runtime.md R2; features A1, A4, A5, A6, D5."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.effects import Effects
from runtime_service.domain.principals import Principal, PrincipalKind
from runtime_service.domain.rules import (
    ApprovalRule,
    Decider,
    Expression,
    JudgedCall,
    Level,
    NothingAsked,
    RuleKind,
    RuleSetting,
    Ruling,
    Said,
    Setting,
    SettingInForce,
    Verdict,
    functions_asked,
    resolve_put_to,
    rule_fields,
    rule_of,
    rule_on,
    rule_problems,
    setting_fields,
    setting_of,
)
from tests.domain.made import person, rules, settings_in_force, some_settings

REFUND = JudgedCall("refund", "support/answer/refund", Effects.CHANGES)
LOOK = JudgedCall("look", "support/look", Effects.READS)
ANSWER = JudgedCall("answer", "support/answer", Effects.CHANGES, is_agent=True)

CHANGES = ApprovalRule(RuleKind.CHANGES)
ALL = ApprovalRule(RuleKind.ALL)

calls = st.builds(
    JudgedCall,
    tool=st.just("refund"),
    path=st.sampled_from(["support/refund", "support/answer/refund", "support/answer", "support/look"]),
    effects=st.sampled_from(Effects),
    is_agent=st.booleans(),
)
sayings = st.dictionaries(
    st.integers(0, 6), st.builds(Said, verdict=st.sampled_from(Verdict), reason=st.text(max_size=3))
)


def _set(level: Level, setting: Setting | ApprovalRule, *, only_adds: bool = False) -> SettingInForce:
    return SettingInForce(level, RuleSetting(setting) if isinstance(setting, ApprovalRule) else setting, only_adds)


@pytest.mark.parametrize(
    ("rule", "call", "asks"),
    [
        (CHANGES, REFUND, True),
        (CHANGES, replace(REFUND, effects=Effects.UNSPECIFIED), True),
        (CHANGES, LOOK, False),
        (CHANGES, ANSWER, True),
        (CHANGES, replace(ANSWER, effects=Effects.READS), False),
        (ApprovalRule(RuleKind.CHANGES, tools_alone=True), ANSWER, False),
        (ApprovalRule(RuleKind.CHANGES, tools_alone=True), REFUND, True),
        (ALL, LOOK, True),
        (ALL, ANSWER, True),
        (ApprovalRule(RuleKind.NAMES, names=("look",)), LOOK, True),
        (ApprovalRule(RuleKind.NAMES, names=("send", "answer/refund")), REFUND, True),
        (ApprovalRule(RuleKind.NAMES, names=("answer",)), REFUND, False),
        (ApprovalRule(RuleKind.UNSPECIFIED), REFUND, False),
    ],
)
def test_a_rule_asks_about_the_calls_that_it_names(rule: ApprovalRule, call: JudgedCall, asks: bool) -> None:
    """A1, A6, R2.6."""
    assert rule_on([_set(Level.SERVICE, rule)], call).verdict is (Verdict.ASK if asks else Verdict.RUN)


def test_nothing_set_and_nothing_asked_let_a_call_run() -> None:
    assert rule_on([], REFUND) == rule_on([_set(Level.AGENT, NothingAsked())], REFUND) == Ruling(Verdict.RUN)


def test_the_most_specific_level_holds_in_whatever_order_they_come() -> None:
    """A4, R2.1: it also loosens, where whoever set it may."""
    settings = [
        _set(Level.SERVICE, ALL),
        _set(Level.CONVERSATION, NothingAsked()),
        _set(Level.AGENT, CHANGES),
    ]
    assert rule_on(settings, REFUND).verdict is Verdict.RUN
    assert rule_on([settings[0], settings[2]], REFUND).asked_by == "changes (agent)"


def test_what_only_adds_never_loosens_and_always_counts() -> None:
    """A4, R2.2: an agent below, and a caller who does not supervise."""
    asks = _set(Level.SERVICE, CHANGES)
    loosens = _set(Level.TURN, NothingAsked(), only_adds=True)
    assert rule_on([loosens, asks], REFUND).verdict is Verdict.ASK
    below = _set(Level.AGENT, ALL, only_adds=True)
    assert rule_on([_set(Level.TURN, NothingAsked()), below], LOOK).asked_by == "all (agent)"


def test_the_floor_adds_to_whatever_is_set() -> None:
    """A4, R2.2."""
    ruling = rule_on([_set(Level.TURN, NothingAsked()), _set(Level.FLOOR, CHANGES)], REFUND)
    assert (ruling.verdict, ruling.asked_by) == (Verdict.ASK, "changes (floor)")


def test_where_several_ask_the_strictest_of_each_holds() -> None:
    """D5, R2.3."""
    settings = [
        _set(Level.CONVERSATION, ApprovalRule(RuleKind.ALL, put_to=("ann",), approvals_needed=0)),
        _set(Level.AGENT, replace(CHANGES, not_the_giver=True, expires_after_seconds=60), only_adds=True),
        _set(
            Level.FLOOR,
            replace(CHANGES, put_to=("role:finance",), approvals_needed=2, expires_after_seconds=900),
        ),
    ]
    assert rule_on(settings, REFUND) == Ruling(
        Verdict.ASK,
        ApprovalRule(
            RuleKind.CHANGES,
            put_to=("role:finance",),
            approvals_needed=2,
            not_the_giver=True,
            expires_after_seconds=60,
        ),
        "changes (floor)",
    )
    above = rule_on(settings[:2], REFUND)
    assert above.rule == ApprovalRule(
        RuleKind.ALL,
        put_to=("ann",),
        approvals_needed=1,
        not_the_giver=True,
        expires_after_seconds=60,
    )
    assert above.asked_by == "all (conversation)"


def test_no_number_of_approvals_is_one() -> None:
    """D5: what is saved says how many."""
    ruling = rule_on([_set(Level.AGENT, replace(CHANGES, approvals_needed=0))], REFUND)
    assert ruling.rule == CHANGES


def test_a_caller_cannot_take_a_question_away_from_those_whom_others_name() -> None:
    """R2.2: no caller loosens what others set, not by `put_to` either."""
    mine = _set(Level.TURN, replace(ALL, put_to=("me",)), only_adds=True)
    theirs = _set(Level.AGENT, replace(CHANGES, put_to=("role:finance",)))
    nobody_named = _set(Level.SERVICE, CHANGES)
    supervised = replace(mine, only_adds=False)

    def put_to(*settings: SettingInForce) -> tuple[str, ...]:
        rule = rule_on(settings, REFUND).rule
        assert rule
        return rule.put_to

    assert put_to(mine, theirs) == ("role:finance",)
    assert put_to(mine, replace(theirs, only_adds=True)) == ("role:finance",)
    assert put_to(mine, nobody_named) == ("me",)
    assert put_to(supervised, theirs) == ("me",)


@pytest.mark.parametrize(
    ("function", "name"), [(Expression("effects == 'CHANGES'"), "expression"), (Decider("till"), "decider")]
)
def test_a_function_decides_at_once(function: Setting, name: str) -> None:
    """A5, R2.5."""
    settings = [_set(Level.AGENT, function)]
    asked = Ruling(Verdict.ASK, ApprovalRule(RuleKind.UNSPECIFIED), f"{name} (agent)")
    refused = Ruling(Verdict.REFUSE, None, f"{name} (agent)", "Too much.")
    assert rule_on(settings, REFUND, {0: Said(Verdict.RUN)}) == Ruling(Verdict.RUN)
    assert rule_on(settings, REFUND, {0: Said(Verdict.ASK)}) == asked
    assert rule_on(settings, REFUND, {0: Said(Verdict.REFUSE, "Too much.")}) == refused
    assert rule_on(settings, REFUND, {0: Said(Verdict.UNSPECIFIED, "Too much.")}) == refused


def test_a_function_that_said_nothing_refuses() -> None:
    """A5, R2.5: nothing that is unknown lets a call run."""
    assert rule_on([_set(Level.AGENT, Decider("till"))], REFUND).verdict is Verdict.REFUSE


def test_a_function_is_not_asked_about_what_only_reads() -> None:
    """A5, R2.5."""
    settings = [_set(Level.AGENT, Decider("till"))]
    assert functions_asked(settings, LOOK) == ()
    assert rule_on(settings, LOOK, {0: Said(Verdict.REFUSE)}).verdict is Verdict.RUN


def test_only_functions_that_hold_are_asked() -> None:
    """A5: a level that is not the most specific one has nothing to say."""
    settings = [
        _set(Level.FLOOR, Expression("true")),
        _set(Level.AGENT, Decider("till")),
        _set(Level.AGENT, Decider("below"), only_adds=True),
        _set(Level.CONVERSATION, CHANGES),
    ]
    assert functions_asked(settings, REFUND) == (2, 0)


def test_a_refusal_beats_a_question() -> None:
    """R2.1."""
    settings = [
        _set(Level.CONVERSATION, CHANGES),
        _set(Level.AGENT, Expression("…"), only_adds=True),
        _set(Level.FLOOR, ALL),
    ]
    ruling = rule_on(settings, REFUND, {1: Said(Verdict.REFUSE, "Closed on Sundays.")})
    assert ruling == Ruling(Verdict.REFUSE, None, "expression (agent)", "Closed on Sundays.")


@given(st.lists(settings_in_force, max_size=6), calls, sayings)
def test_the_verdict_is_the_greatest_of_the_settings_that_hold(
    settings: list[SettingInForce], call: JudgedCall, said: dict[int, Said]
) -> None:
    """A4, R2.1, R2.2, against the rule read aloud."""
    holding = [index for index, each in enumerate(settings) if each.only_adds or each.level is Level.FLOOR]
    for level in (Level.TURN, Level.CONVERSATION, Level.AGENT, Level.TENANT, Level.SERVICE):
        here = [index for index, each in enumerate(settings) if each.level is level and not each.only_adds]
        if here:
            holding.append(here[0])
            break
    names = {"refund": "refund", "answer/refund": "answer/refund", "look": "look", "answer": "answer"}

    def says(index: int) -> Verdict:
        match settings[index].setting:
            case NothingAsked():
                return Verdict.RUN
            case Expression() | Decider():
                if call.effects is Effects.READS:
                    return Verdict.RUN
                heard = said[index].verdict if index in said else Verdict.REFUSE
                return Verdict.REFUSE if heard is Verdict.UNSPECIFIED else heard
            case RuleSetting(rule):
                named = any(f"/{call.path}".endswith(f"/{names[name]}") for name in rule.names)
                changes = call.effects is not Effects.READS and not (call.is_agent and rule.tools_alone)
                asks = {RuleKind.ALL: True, RuleKind.CHANGES: changes, RuleKind.NAMES: named}
                return Verdict.ASK if asks.get(rule.kind) else Verdict.RUN

    ruling = rule_on(settings, call, said)
    assert ruling.verdict is max([Verdict.RUN, *map(says, holding)])
    assert (ruling.rule is not None) == (ruling.verdict is Verdict.ASK)
    assert bool(ruling.asked_by) == (ruling.verdict is not Verdict.RUN)


@given(st.lists(settings_in_force, max_size=5), settings_in_force, calls, sayings)
def test_nothing_that_only_adds_makes_a_verdict_smaller(
    settings: list[SettingInForce], added: SettingInForce, call: JudgedCall, said: dict[int, Said]
) -> None:
    """R2.2: nor fewer approvals, a later expiry, or a giver who may say yes again."""
    before = rule_on(settings, call, said)
    after = rule_on([*settings, replace(added, only_adds=True)], call, said)
    assert after.verdict >= before.verdict
    if before.rule and after.rule:
        assert after.rule.approvals_needed >= before.rule.approvals_needed
        assert after.rule.not_the_giver >= before.rule.not_the_giver
        soonest = before.rule.expires_after_seconds
        assert not soonest or 0 < after.rule.expires_after_seconds <= soonest


def test_a_question_is_put_to_those_named_or_to_whom_it_concerns() -> None:
    """Settled 12: never empty, nobody twice."""
    bot = Principal("bot", PrincipalKind.SERVICE, on_behalf_of="ann")
    assert resolve_put_to(CHANGES, person("ann"), person("ben")) == ("ann", "ben", "role:supervises")
    assert resolve_put_to(CHANGES, person("ann"), person("ann")) == ("ann", "role:supervises")
    assert resolve_put_to(CHANGES, person("ann"), bot) == ("ann", "bot", "role:supervises")
    named = replace(CHANGES, put_to=("cat", "role:finance", "cat"))
    assert resolve_put_to(named, person("ann"), person("ben")) == ("cat", "role:finance")


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (ApprovalRule(RuleKind.UNSPECIFIED), ["approve.rule"]),
        (ApprovalRule(RuleKind.NAMES), ["approve.rule.names.names"]),
        (
            ApprovalRule(RuleKind.NAMES, names=("ok", "", "/refund", "a#1", "a//b", "a b")),
            [f"approve.rule.names.names[{place}]" for place in (1, 2, 3, 4, 5)],
        ),
        (replace(CHANGES, put_to=("ann", "", "role:")), ["approve.rule.put_to[1]", "approve.rule.put_to[2]"]),
        (replace(CHANGES, put_to=("ann",), approvals_needed=5), ["approve.rule.approvals_needed"]),
        (replace(CHANGES, put_to=("ann", "ann"), approvals_needed=2), ["approve.rule.approvals_needed"]),
        (replace(CHANGES, put_to=("ben",), not_the_giver=True), ["approve.rule.put_to"]),
        (replace(CHANGES, put_to=("ben", "ann"), not_the_giver=True), ["approve.rule.put_to"]),
        (
            replace(CHANGES, put_to=("ben", "cat"), not_the_giver=True, approvals_needed=2),
            ["approve.rule.approvals_needed"],
        ),
    ],
)
def test_a_rule_that_can_never_be_met_is_refused_as_it_is_set(rule: ApprovalRule, fields: list[str]) -> None:
    """D5, R2.6. Ben gives the work on Ann's behalf."""
    ben = Principal("ben", PrincipalKind.SERVICE, on_behalf_of="ann")
    assert [field for field, _ in rule_problems(rule, "approve.rule", ben)] == fields


@pytest.mark.parametrize(
    "rule",
    [
        CHANGES,
        ALL,
        ApprovalRule(RuleKind.NAMES, names=("refund", "answer/refund", "research.deep")),
        replace(CHANGES, approvals_needed=5, not_the_giver=True),
        replace(CHANGES, put_to=("role:finance",), approvals_needed=5),
        replace(CHANGES, put_to=("ann", "ben"), approvals_needed=2),
        replace(CHANGES, put_to=("ann",), not_the_giver=True),
    ],
)
def test_a_rule_that_can_be_met_is_taken(rule: ApprovalRule) -> None:
    """R2.6."""
    assert rule_problems(rule, "approve.rule") == []


@given(rules)
def test_a_rule_is_read_back_as_it_was_saved(rule: ApprovalRule) -> None:
    assert rule_of(rule_fields(rule)) == rule


@given(some_settings)
def test_a_setting_is_read_back_as_it_was_saved(setting: Setting) -> None:
    assert setting_of(setting_fields(setting)) == setting


def test_a_setting_of_a_later_kind_is_not_taken_for_another() -> None:
    with pytest.raises(ValueError, match="oracle"):
        setting_of({"oracle": {}})
