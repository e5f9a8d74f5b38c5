"""Cursors hold where they were given, bells do not forget."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_kit.errors import CursorExpired, InvalidField
from service_kit.feeds import Bell, CursorCodec, Position

POSITIONS = st.builds(Position, st.integers(0, 2**63), st.integers(0, 2**63))
PLACE = Position(0, 7)


@given(POSITIONS, st.text(), st.integers(0, 2**63), st.text())
def test_a_cursor_comes_back_as_it_was_given(position: Position, filter_key: str, sub: int, generation: str) -> None:
    codec = CursorCodec(generation)

    assert codec.decode(codec.encode(position, filter_key, sub), filter_key) == (position, sub)


def test_a_cursor_of_another_filter_or_database_has_expired() -> None:
    """Settled 18."""
    cursor = CursorCodec("g1").encode(PLACE, "tenant=north")

    with pytest.raises(CursorExpired):
        CursorCodec("g1").decode(cursor, "tenant=south")
    with pytest.raises(CursorExpired):
        CursorCodec("g2").decode(cursor, "tenant=north")


def test_a_cursor_of_another_version_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = CursorCodec("g1")
    with monkeypatch.context() as later:
        later.setattr(CursorCodec, "_VERSION", 99)
        cursor = codec.encode(PLACE, "")

    with pytest.raises(CursorExpired):
        codec.decode(cursor, "")


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.hex())))
def test_what_is_no_cursor_is_an_invalid_field(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        CursorCodec("g1").decode(text, "")

    assert [path for path, _ in caught.value.fields] == ["cursor"]


@given(st.integers(0, 61), st.sampled_from("ABCxyz019-_"))
def test_a_cursor_with_another_letter_is_none_or_the_same(place: int, letter: str) -> None:
    codec = CursorCodec("g1")
    cursor = codec.encode(PLACE, "", 3)
    changed = cursor[:place] + letter + cursor[place + 1 :]

    try:
        assert codec.decode(changed, "") == (PLACE, 3)
    except InvalidField:
        assert changed != cursor


async def test_a_ring_between_a_look_and_the_wait_is_not_lost() -> None:
    bell = Bell()
    with bell.listen("north") as hints:
        bell.ring("north")
        assert await hints.wait(30)


async def test_many_rings_are_one_hint() -> None:
    bell = Bell()
    with bell.listen("north") as hints:
        for _ in range(1_000):
            bell.ring("south", "north")
        assert await hints.wait(30)
        assert not await hints.wait(0.01)


async def test_a_ring_wakes_everybody_who_listens_to_its_topic_and_nobody_else() -> None:
    bell = Bell()
    with bell.listen("north") as one, bell.listen("north") as two, bell.listen("south") as other:
        waiting = [asyncio.ensure_future(hints.wait(30)) for hints in (one, two)]
        await asyncio.sleep(0)
        bell.ring("north")
        assert await asyncio.gather(*waiting) == [True, True]
        assert not await other.wait(0.01)


async def test_who_stopped_listening_leaves_nothing_behind() -> None:
    bell = Bell()
    tasks = asyncio.all_tasks()
    with bell.listen("north") as hints:
        waiting = asyncio.ensure_future(hints.wait(30))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await hints.wait(0.01)
    bell.ring("north")

    assert not bell._listeners
    assert asyncio.all_tasks() == tasks
