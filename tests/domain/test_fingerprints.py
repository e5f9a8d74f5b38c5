"""What a yes covers: runtime.md R1.4, R3.5, docs/fingerprints.md; feature D1."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.addresses import Address
from runtime_service.domain.agents import Shown, tools_hash
from runtime_service.domain.effects import Declaration, Effects
from runtime_service.domain.fingerprints import FingerprintFields, fingerprint
from runtime_service.domain.length_prefix import lp
from runtime_service.domain.rules import ApprovalRule, RuleKind, rule_fields, rule_of
from tests.domain.made import rules, texts

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "fingerprints.json").read_text())

covered = st.builds(
    FingerprintFields,
    turn_id=texts,
    address=texts,
    tool=texts,
    declaration_hash=texts,
    input_json=texts,
    effects=st.sampled_from(Effects),
    rule=rules,
    agent_version=texts,
    skill_version=texts,
    instruction_set=st.integers(0, 99),
    block_sha256=texts,
)

ASKED = FingerprintFields(
    turn_id="t1",
    address=Address("support/refund#1"),
    tool="refund",
    declaration_hash="ab",
    input_json='{"order":7}',
    effects=Effects.CHANGES,
    rule=ApprovalRule(RuleKind.CHANGES),
    agent_version="v1",
    skill_version="2",
    instruction_set=3,
    block_sha256="cd",
)


def _by_hand(prefix: str, *parts: str) -> str:
    """The encoding as docs/fingerprints.md tells it, written once more."""
    hashed = hashlib.sha256(prefix.encode() + b"\x00")
    for part in parts:
        hashed.update(len(part.encode()).to_bytes(4, "big") + part.encode())
    return hashed.hexdigest()


def _fields_of(vector: dict[str, Any]) -> FingerprintFields:
    given = {**vector, "effects": Effects(vector["effects"]), "rule": rule_of(vector["rule"])}
    return FingerprintFields(**given)


@pytest.mark.parametrize("vector", VECTORS["fingerprint"], ids=lambda vector: vector["says"])
def test_published_fingerprints_are_reproduced(vector: dict[str, Any]) -> None:
    """D1."""
    assert rule_fields(_fields_of(vector["fields"]).rule) == vector["fields"]["rule"]
    assert fingerprint(_fields_of(vector["fields"])) == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["declaration_hash"], ids=lambda vector: vector["says"])
def test_published_declaration_hashes_are_reproduced(vector: dict[str, Any]) -> None:
    """D1, R1.4."""
    declared = vector["declaration"]
    declaration = Declaration(
        declared["name"],
        declared["description"],
        declared["input_schema_json"],
        Effects(declared["effects"]),
        declared["timeout_seconds"],
    )
    assert declaration.hash == vector["sha256"]
    canonical_schema = vector["canonical_schema"]
    assert vector["sha256"] == _by_hand(
        "tutelage.declaration.v1", declaration.name, canonical_schema, declaration.effects.value
    )


def test_the_published_hash_of_shown_tools_is_reproduced() -> None:
    """R6.2."""
    vector = VECTORS["tools_hash"]
    shown = [
        Shown(
            Declaration(each["name"], each["description"], each["input_schema_json"], Effects(each["effects"])),
            each["agent"],
            each["agent_version"],
            each["skill"],
        )
        for each in vector["tools"]
    ]
    assert tools_hash(shown) == vector["sha256"]
    parts = [
        part
        for each in shown
        for part in (each.declaration.hash, each.declaration.description, each.agent, each.agent_version, each.skill)
    ]
    assert vector["sha256"] == _by_hand("tutelage.tools.v1", *parts)


@given(covered)
def test_a_fingerprint_is_over_the_fields_in_their_published_order(asked: FingerprintFields) -> None:
    """D1, R3.5."""
    rule = json.dumps(rule_fields(asked.rule), sort_keys=True, separators=(",", ":"))
    assert fingerprint(asked) == _by_hand(
        "tutelage.fingerprint.v1",
        asked.turn_id,
        asked.address,
        asked.tool,
        asked.declaration_hash,
        asked.input_json,
        asked.effects.value,
        rule,
        asked.agent_version,
        asked.skill_version,
        str(asked.instruction_set),
        asked.block_sha256,
    )


@pytest.mark.parametrize("field", [field.name for field in fields(FingerprintFields)])
def test_whatever_a_yes_covers_changes_the_fingerprint(field: str) -> None:
    """D1: the input too where only its spelling differs, since what was shown is what runs (R2.7)."""
    others: dict[str, Any] = {
        "effects": Effects.UNSPECIFIED,
        "rule": ApprovalRule(RuleKind.CHANGES, approvals_needed=2),
        "instruction_set": 4,
        "input_json": '{"order": 7}',
    }
    other = others[field] if field in others else getattr(ASKED, field) + "x"
    changed = replace(ASKED, **{field: other})
    assert fingerprint(changed) != fingerprint(ASKED)


@given(st.lists(texts), st.lists(texts))
def test_no_two_lists_of_fields_are_joined_alike(one: list[str], other: list[str]) -> None:
    assert (lp(*one) == lp(*other)) == (one == other)


def test_letters_cannot_move_from_one_field_to_the_next() -> None:
    """D1."""
    moved = replace(ASKED, turn_id="t1s", address=Address("upport/refund#1"))
    assert fingerprint(moved) != fingerprint(ASKED)


def test_the_tools_shown_count_in_their_order_with_their_words_and_the_versions_they_run() -> None:
    """R6.2: what the model was shown, kept once; a time-out is nothing that it is shown."""
    pay = Declaration("pay", "Pays.", "{}", Effects.CHANGES)
    look = Shown(Declaration("look", "Looks.", "{}", Effects.READS))
    agent = Shown(Declaration("desk", "Answers.", "{}", Effects.READS), "desk", "v1", "")
    shown = tools_hash([Shown(pay), look, agent])
    assert shown == tools_hash([Shown(replace(pay, timeout_seconds=1)), look, agent])
    others = [
        [look, Shown(pay), agent],
        [Shown(pay), agent],
        [],
        [Shown(replace(pay, description="Pays twice.")), look, agent],
        [Shown(replace(pay, effects=Effects.READS)), look, agent],
        [Shown(pay), look, replace(agent, agent_version="v2")],
    ]
    assert shown not in {tools_hash(other) for other in others}
