"""Records, their facts and words, and the chain that proves them: runtime.md R5, docs/journal.md; D2, D6."""

import hashlib
import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tutelage.runtime.v1 import journal_pb2

from runtime_service.domain.addresses import Address
from runtime_service.domain.canonical_json import canonical
from runtime_service.domain.journal import (
    KINDS,
    Record,
    ToolDone,
    ToolEnd,
    TurnEnd,
    TurnEnded,
    UnfinishedResolved,
    What,
    WriterStarted,
    facts_and_words,
    first_chain,
    is_sound,
    kind_of,
    rebuilt,
    seal,
)
from runtime_service.domain.record_form import Words
from tests.domain.made import NOON, person, whats

HERE = Path(__file__)
VECTORS = json.loads((HERE.parents[1] / "vectors" / "journal.json").read_text())
TABLE = {
    kind: (set(re.findall(r"`([^`]+)`", facts)), set(re.findall(r"`([^`]+)`", words)))
    for kind, facts, words in re.findall(
        r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|$",
        (HERE.parents[2] / "docs" / "journal.md").read_text(),
        re.MULTILINE,
    )
}
SALT = bytes(range(16))

each_kind = pytest.mark.parametrize("kind", KINDS)
any_what = st.one_of(*whats.values())


@st.composite
def chains(draw: st.DrawFn) -> list[Record]:
    """A turn's first records."""
    chain, records = first_chain("acme", "t1"), []
    for place, what in enumerate(draw(st.lists(any_what, min_size=1, max_size=4))):
        salt = draw(st.binary(min_size=16, max_size=16))
        record = seal(chain, place + 1, 1, NOON, Address("support/answer#2"), what, salt)
        records.append(record)
        chain = record.chain
    return records


def _all_sound(records: list[Record]) -> bool:
    befores = [first_chain("acme", "t1"), *(record.chain for record in records)]
    return all(is_sound(record, before) for record, before in zip(records, befores, strict=False))


@each_kind
def test_each_kind_has_the_contracts_fields_in_its_order(kind: str) -> None:
    message = journal_pb2.Record.DESCRIPTOR.fields_by_name[kind].message_type
    assert message
    assert message.name == KINDS[kind].__name__
    assert [field.name for field in message.fields] == [field.name for field in fields(KINDS[kind])]


def test_the_kinds_are_the_contracts() -> None:
    oneof = journal_pb2.Record.DESCRIPTOR.oneofs_by_name["what"]
    assert list(KINDS) == [field.name for field in oneof.fields]


@each_kind
@given(st.data())
def test_every_record_is_read_back_as_it_was(kind: str, data: st.DataObject) -> None:
    what = data.draw(whats[kind])
    facts, words = facts_and_words(what)
    assert kind_of(what) == kind
    assert rebuilt(kind, facts, words) == what


@each_kind
@given(st.data())
def test_facts_and_words_are_canonical_and_flat_as_published(kind: str, data: st.DataObject) -> None:
    """R5.4: one text for one record, whoever writes it; each part where the published table has it."""
    facts, words = facts_and_words(data.draw(whats[kind]))
    assert canonical(facts) == facts
    assert not words or canonical(words) == words
    known_facts, known_words = TABLE[kind]
    assert set(json.loads(facts)) <= known_facts
    found = json.loads(words) if words else {}
    assert {re.sub(r"/\d+/", "/N/", path) for path in found} <= known_words
    assert all(isinstance(text, str) and text for text in found.values())


@each_kind
def test_the_published_table_names_every_field_on_its_side(kind: str) -> None:
    """R5.4."""
    known_facts, known_words = TABLE[kind]
    hints = get_type_hints(KINDS[kind], include_extras=True)
    words = {name for name, hint in hints.items() if hint == Words}
    either = {name for name, hint in hints.items() if hint == (Words | None)}
    assert {path for path in known_words if "/" not in path} == words | either
    assert known_facts == hints.keys() - words


@each_kind
@given(st.data())
def test_erasing_words_leaves_the_facts_and_nothing_that_was_said(kind: str, data: st.DataObject) -> None:
    """D6: what is left is the same record with every word empty."""
    what = data.draw(whats[kind])
    facts, _ = facts_and_words(what)
    left = rebuilt(kind, facts, None)
    assert facts_and_words(left) == (facts, "")


def test_which_outcome_was_chosen_outlives_its_words() -> None:
    """R5.3: outcomes are facts."""
    failed = UnfinishedResolved("c1", person("ann"), error="It broke.")
    facts, _ = facts_and_words(failed)
    left = rebuilt("unfinished_resolved", facts, None)
    assert left == replace(failed, error="")


def test_what_is_empty_is_left_out_so_that_later_fields_change_no_old_digest() -> None:
    assert facts_and_words(TurnEnded(TurnEnd.UNSPECIFIED)) == ("{}", "")
    assert facts_and_words(ToolDone("c1", 0, "", "1", ToolEnd.RETURNED)) == (
        '{"call_id":"c1","end":"RETURNED"}',
        '{"output_json":"1"}',
    )


def test_facts_of_a_later_release_are_passed_over_and_its_states_are_not() -> None:
    later = '{"process":"p","shard":7,"why":"given"}'
    assert rebuilt("writer_started", later, "") == WriterStarted("p", "given")
    with pytest.raises(KeyError):
        rebuilt("turn_ended", '{"end":"MERGED"}', "")
    with pytest.raises(KeyError):
        rebuilt("turn_merged", "{}", "")


def test_a_moment_is_told_in_utc_and_a_time_without_a_zone_is_none() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    one = seal(first_chain("acme", "t1"), 1, 1, NOON, Address("a"), WriterStarted("p", "given"), b"")
    other = seal(first_chain("acme", "t1"), 1, 1, east, Address("a"), WriterStarted("p", "given"), b"")
    assert one.chain == other.chain
    with pytest.raises(ValueError, match="zone"):
        seal("00", 1, 1, datetime(2026, 3, 1), Address("a"), WriterStarted("p", "given"), b"")  # noqa: DTZ001


@each_kind
def test_published_records_are_reproduced(kind: str) -> None:
    """D6, R5.4: a change here breaks every journal that was ever written."""
    turn = VECTORS["turn"]
    before = first_chain(turn["tenant"], turn["id"])
    assert before == turn["first_chain"]
    (place,) = (place for place, each in enumerate(VECTORS["records"]) if each["kind"] == kind)
    before = VECTORS["records"][place - 1]["chain"] if place else before
    vector = VECTORS["records"][place]
    what = rebuilt(kind, vector["facts"], vector["words"])
    time = datetime.fromisoformat(vector["time"])
    salt = bytes.fromhex(vector["salt"])
    record = seal(before, vector["line"], vector["writer"], time, vector["address"], what, salt)
    assert {name: vector[name] for name in ("facts", "words", "words_digest", "content_digest", "chain")} == {
        "facts": record.facts,
        "words": record.words,
        "words_digest": record.words_digest,
        "content_digest": record.content_digest,
        "chain": record.chain,
    }
    assert is_sound(record, before)


def test_published_chains_are_what_the_published_encoding_gives() -> None:
    """D6: docs/journal.md, followed by hand."""

    def lp(*parts: str) -> bytes:
        return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)

    def sha(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    turn = VECTORS["turn"]
    chain = sha(b"tutelage.turn.v1\x00", lp(turn["tenant"], turn["id"]))
    for vector in VECTORS["records"]:
        words = sha(bytes.fromhex(vector["salt"]), vector["words"].encode())
        content = sha(b"tutelage.content.v1\x00", lp(vector["facts"]), words)
        head = lp(str(vector["line"]), str(vector["writer"]), vector["time"], vector["address"], vector["kind"])
        chain = sha(b"tutelage.record.v1\x00", chain, head, content)
        assert chain.hex() == vector["chain"]


@given(chains())
def test_a_journal_that_nobody_touched_is_sound_also_after_erasure(records: list[Record]) -> None:
    """D6."""
    assert _all_sound(records)
    assert _all_sound([_erased(record) for record in records])


@given(chains(), st.data())
def test_no_field_of_a_record_can_be_changed_unseen(records: list[Record], data: st.DataObject) -> None:
    """D6: nor a record taken out, put in twice, or moved."""
    place = data.draw(st.integers(0, len(records) - 1))
    record = records[place]
    changes: list[dict[str, Any]] = [
        {"line": record.line + 1},
        {"writer": record.writer + 1},
        {"time": record.time + timedelta(microseconds=1)},
        {"address": "support/answer#3"},
        {"what": next(each for each in (_A_START, _AN_END) if type(each) is not type(record.what))},
        {"facts": record.facts[:-1] + " }"},
        {"words": record.words + " "},
        {"words_salt": record.words_salt + b"\0"},
        {"words_digest": _other(record.words_digest)},
        {"content_digest": _other(record.content_digest)},
        {"chain": _other(record.chain)},
    ]
    change = data.draw(st.sampled_from(changes))
    assert not _all_sound([*records[:place], replace(record, **change), *records[place + 1 :]])
    assert not _all_sound([*records[: place + 1], *records[place:]])
    if place < len(records) - 1:
        assert not _all_sound([*records[:place], *records[place + 1 :]])


@given(chains())
def test_words_cannot_come_back_into_a_record_that_says_they_were_erased(records: list[Record]) -> None:
    """D6."""
    assert not _all_sound([replace(_erased(records[0]), words='{"text":"I never said that."}'), *records[1:]])


def test_a_turns_chain_is_its_own() -> None:
    """D6: no journal can be passed off as another turn's, or another tenant's."""
    assert len({first_chain("acme", "t1"), first_chain("acme", "t2"), first_chain("acmet", "1")}) == 3


def test_words_are_hidden_by_a_salt_and_a_record_without_any_needs_none() -> None:
    """R5.4."""
    before, done = first_chain("acme", "t1"), ToolDone("c1", 1, "look", '"yes"', ToolEnd.RETURNED)
    one = seal(before, 1, 1, NOON, Address("a"), done, SALT)
    other = seal(before, 1, 1, NOON, Address("a"), done, bytes(16))
    assert one.words_digest != other.words_digest
    assert seal(before, 1, 1, NOON, Address("a"), _A_START, SALT).words_salt == b""
    with pytest.raises(ValueError, match="16 bytes"):
        seal(before, 1, 1, NOON, Address("a"), done, b"")


_A_START: What = WriterStarted("p", "given")
_AN_END: What = TurnEnded(TurnEnd.DONE)


def _other(digest: str) -> str:
    return ("1" if digest[0] == "0" else "0") + digest[1:]


def _erased(record: Record) -> Record:
    left = rebuilt(kind_of(record.what), record.facts, None)
    return replace(record, what=left, words="", words_salt=b"", erase_time=datetime(2026, 4, 1, tzinfo=UTC))
