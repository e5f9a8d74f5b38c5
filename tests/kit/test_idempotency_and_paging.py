"""The same request is the same call; a page token goes on where its page ended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import MetaData
from tutelage.runtime.v1 import turns_pb2

from service_kit.checks import Fields
from service_kit.database import Database
from service_kit.errors import InvalidField, RequestIdReused
from service_kit.idempotency import (
    RequestKey,
    find_request,
    record_request,
    request_digest,
    requests_table,
)
from service_kit.paging import PageCodec, page_size

NOW = datetime(2026, 5, 1, tzinfo=UTC)
metadata = MetaData()
requests = requests_table(metadata)
KEY = RequestKey("north", "ada", "StartTurn", "r1")


@pytest.fixture
async def db(database: Database) -> Database:
    await database.write(metadata.create_all)
    await database.write(lambda connection: record_request(connection, requests, KEY, "d1", "turn-1", NOW))
    return database


async def found(db: Database, key: RequestKey, digest: str) -> str | None:
    return await db.read(lambda connection: find_request(connection, requests, key, digest))


async def test_the_same_request_again_has_come_to_the_same(db: Database) -> None:
    assert await found(db, KEY, "d1") == "turn-1"


async def test_the_same_id_with_another_request_is_refused(db: Database) -> None:
    with pytest.raises(RequestIdReused):
        await found(db, KEY, "d2")


@pytest.mark.parametrize(
    "other",
    [
        RequestKey("south", "ada", "StartTurn", "r1"),
        RequestKey("north", "ben", "StartTurn", "r1"),
        RequestKey("north", "ada", "ResumeTurn", "r1"),
        RequestKey("north", "ada", "StartTurn", "r2"),
    ],
)
async def test_an_id_is_its_tenants_its_accounts_and_its_rpcs_own(other: RequestKey, db: Database) -> None:
    assert await found(db, other, "d2") is None


def test_a_digest_is_of_everything_but_the_request_id() -> None:
    asked = turns_pb2.AbandonTurnRequest(turn_id="t1", why="enough", request_id="r1")
    again = turns_pb2.AbandonTurnRequest(turn_id="t1", why="enough", request_id="r2")
    other = turns_pb2.AbandonTurnRequest(turn_id="t1", why="enough!", request_id="r1")

    assert request_digest(asked) == request_digest(again)
    assert request_digest(asked) != request_digest(other)
    assert asked.request_id == "r1"


def test_a_digest_is_the_same_in_every_process() -> None:
    """It is kept: a new library, or another replica, must find the same."""
    asked = turns_pb2.AbandonTurnRequest(turn_id="t1", why="genug für heute")

    assert request_digest(asked) == "7e45b33c72ce15e6660e84e2d0d1dd2ec82d45514bc8344454bfd0155e2de6de"


@pytest.mark.parametrize("text", ["", "any text at all, ünïcode too", "x" * 256])
def test_any_text_may_be_a_request_id(text: str) -> None:
    fields = Fields()

    assert fields.request_id(text) == text
    fields.done()


@pytest.mark.parametrize("text", ["a\0b", "x" * 257, "é" * 129])
def test_a_request_id_with_nul_or_over_256_bytes_is_refused(text: str) -> None:
    """Settled 16."""
    fields = Fields()
    fields.request_id(text)

    with pytest.raises(InvalidField) as caught:
        fields.done()
    assert [path for path, _ in caught.value.fields] == ["request_id"]


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (1, 1), (1_000, 1_000), (1_001, 1_000), (2**31 - 1, 1_000)])
def test_a_page_has_as_many_as_was_asked_within_bounds(asked: int, given: int) -> None:
    assert page_size(asked) == given


def test_a_page_size_below_0_is_refused() -> None:
    """Settled 17."""
    with pytest.raises(InvalidField) as caught:
        page_size(-1)

    assert [path for path, _ in caught.value.fields] == ["page_size"]


@given(st.text(), st.one_of(st.integers(), st.text()))
def test_a_page_token_goes_on_where_its_page_ended(filter_key: str, last: int | str) -> None:
    assert PageCodec.decode(filter_key, PageCodec.encode(filter_key, last)) == last


def test_without_a_token_a_list_begins_at_its_start() -> None:
    assert PageCodec.decode("state=WAITING", "") is None


@given(st.text(min_size=1))
def test_a_page_token_that_was_not_given_for_this_request_is_refused(text: str) -> None:
    for token in (text, PageCodec.encode("state=DONE", 7)):
        with pytest.raises(InvalidField) as caught:
            PageCodec.decode("state=WAITING", token)
        assert [path for path, _ in caught.value.fields] == ["page_token"]
