"""Sets and blocks, as docs/sets.md publishes them (T4.2, T5)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teaching_service.domain.block import Limits, applying, block_of, in_order, render, sent
from teaching_service.domain.instructions import ForWhat, Instruction, Work
from teaching_service.domain.sets import set_hash
from tests.teaching.made import AIMS, active, instruction

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sets.json").read_text())
EVERYTHING_FITS = Limits(1_000, 1_000_000)


def _lp(field: bytes) -> bytes:
    return len(field).to_bytes(4, "big") + field


def _by_hand(members: list[dict[str, str]]) -> str:
    """The encoding as docs/sets.md tells it, written once more."""
    hashed = b"tutelage.set.v1\0" + len(members).to_bytes(4, "big")
    for one in members:
        for name in ("id", "skill", "for_person", "on_scope"):
            hashed += _lp(one[name].encode())
        hashed += _lp(hashlib.sha256(one["guidance"].encode()).digest())
    return hashlib.sha256(hashed).hexdigest()


def _plain(members: list[Instruction]) -> list[dict[str, str]]:
    names = ("skill", "for_person", "on_scope", "guidance")
    return [{"id": one.id} | {name: getattr(one.says, name) for name in names} for one in members]


@pytest.mark.parametrize("vector", VECTORS["sets"], ids=lambda vector: vector["says"])
def test_published_sets_are_reproduced(vector: dict[str, Any]) -> None:
    """B11, T4.2, T5.4: the hash by hand and by the service, the text to the byte."""
    members = [
        instruction(
            one["id"], one["guidance"], place, **{name: one[name] for name in ("skill", "for_person", "on_scope")}
        )
        for place, one in enumerate(vector["members"], 1)
    ]

    assert set_hash(members) == _by_hand(vector["members"]) == vector["hash"]
    assert in_order(members) == members
    assert render(members) == vector["block"]
    assert hashlib.sha256(vector["block"].encode()).hexdigest() == vector["block_sha256"]


@given(active)
def test_a_sets_hash_is_over_its_members_in_their_published_order(members: list[Instruction]) -> None:
    """B11."""
    assert set_hash(in_order(members)) == _by_hand(_plain(in_order(members)))


@given(active, st.randoms())
def test_the_same_instructions_give_the_same_hash_however_they_come(members: list[Instruction], random: Any) -> None:
    """T4.2: number and time do not enter, nor who activated them and when."""
    shuffled = [replace(one, review_why="otherwise", first_active_time=None) for one in members]
    random.shuffle(shuffled)

    assert set_hash(in_order(shuffled)) == set_hash(in_order(members))


def test_letters_cannot_move_from_one_field_to_the_next() -> None:
    """T4.2: what differs in any field differs in the hash."""
    one = instruction("i1", "Be brief.", 1, skill="ab")
    others = [
        replace(one, id="i"),
        replace(one, says=replace(one.says, skill="a")),
        replace(one, says=replace(one.says, skill="", on_scope="ab")),
        replace(one, says=replace(one.says, skill="", for_person="ab")),
        instruction("i1", "Be briefer.", 1, skill="ab"),
    ]
    hashes = {set_hash([each]) for each in [one, *others]} | {set_hash([one, one]), set_hash([])}

    assert len(hashes) == len(others) + 3


@given(active)
def test_instructions_stand_in_the_order_of_how_specific_they_are_then_of_activation(
    members: list[Instruction],
) -> None:
    """B7, T5.2."""
    ordered = in_order(members)

    kinds = [one.says.for_what for one in ordered]
    assert kinds == sorted(kinds)
    for kind in ForWhat:
        firsts = [one.first_set for one in ordered if one.says.for_what is kind]
        assert firsts == sorted(firsts)


@given(active, st.sampled_from(AIMS), st.sampled_from(AIMS))
def test_what_applies_is_for_everything_or_for_the_works_own(
    members: list[Instruction], one: dict[str, str], other: dict[str, str]
) -> None:
    """B7, T5.1."""
    aims = one | other
    work = Work(aims.get("skill", ""), aims.get("on_scope", ""), aims.get("for_person", ""))

    apply = applying(members, work)

    own = [
        each
        for each in in_order(members)
        if each.says.work == Work()
        or each.says.work in (Work(skill=work.skill), Work(scope=work.scope), Work(work_for=work.work_for))
    ]
    assert apply == own


@given(active, st.integers(1, 12), st.integers(120, 600))
def test_the_least_specific_are_left_out_from_the_front_whole_ones(
    members: list[Instruction], most_instructions: int, most_characters: int
) -> None:
    """B8, T5.3: as few as may be, and no more is sent than the most."""
    limits, apply = Limits(most_instructions, most_characters), in_order(members)

    chosen = sent(apply, limits)
    block = block_of("Tagger", 3, "ab", apply, limits)

    assert apply[len(apply) - len(chosen) :] == list(chosen)
    assert len(chosen) <= most_instructions
    assert len(render(chosen)) <= most_characters
    one_more = apply[len(apply) - len(chosen) - 1 :] if len(chosen) < len(apply) else None
    assert one_more is None or not limits.holds(one_more)
    assert block.left_out == len(apply) - len(chosen)
    assert block.words == f"Set 3 of Tagger: {len(chosen)} sent, {block.left_out} left out."
    assert block.instruction_ids == tuple(one.id for one in chosen)
    assert block.sha256 == hashlib.sha256(block.text.encode()).hexdigest()


def test_a_block_is_exact_to_the_byte() -> None:
    """B9, T5.4: heading, LF, number, point, blank, guidance; no line feed at the end; nothing where none applies."""
    members = [instruction("i1", "Put the common name first.", 1), instruction("i2", "Schön kurz.", 2)]

    text = block_of("Tagger", 2, "ab", members, EVERYTHING_FITS).text
    nothing = block_of("Tagger", 2, "ab", [], EVERYTHING_FITS)

    assert text.encode() == (
        b"What people have told you since you were written. Where two of these disagree, the later one holds."
        b"\n1. Put the common name first.\n2. Sch\xc3\xb6n kurz."
    )
    assert (nothing.text, nothing.sha256[:8]) == ("", "e3b0c442")
