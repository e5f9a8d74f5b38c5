"""`check` finds each kind of damage to a teaching service's database, and of a sound one says nothing (5.11)."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from tests.sound import wrong_in
from tests.teaching.service import Teaching

Whole = tuple[Path, Mapping[str, str]]


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A database with something of everything in it, and the ids of it."""
    folder = tmp_path_factory.mktemp("taught")
    async with AsyncExitStack() as cleanup:
        teaching = Teaching(folder, cleanup)
        await teaching.start()
        cleanup.push_async_callback(teaching.stop)
        names = await _taught(teaching)
    return folder, names


async def _taught(teaching: Teaching) -> dict[str, str]:
    """Sets 1 to 5: two instructions, one of them retired, another, and back to set 2."""
    early, _ = await teaching.begin()
    correction = await teaching.correct(early, request_id="the-first")
    drawn = await teaching.propose("Common name first.", "hale", from_corrections=[correction.id])
    await teaching.activate(drawn)
    tags = await teaching.teach("In brackets.", skill="WriteTag")
    task, _ = await teaching.begin()
    await teaching.retire(tags.id)
    gone = await teaching.teach("No prices.")
    await teaching.take_up(task, 1)
    await teaching.roll_back(2)
    await teaching.put(task, "proposal", "role:teaches")
    proposed = await teaching.propose("Write it by hand.", request_id="proposed")
    rejected = await teaching.propose("Write nothing.")
    await teaching.reject(rejected.id)
    return {
        "early": early, "task": task, "correction": correction.id, "first": drawn.id, "tags": tags.id,
        "gone": gone.id, "proposed": proposed.id, "rejected": rejected.id,
    }  # fmt: skip


async def test_of_a_sound_database_nothing_is_said(whole: Whole) -> None:
    """All that the service writes holds."""
    assert await wrong_in(whole[0]) == []


async def test_erased_words_are_no_damage(whole: Whole, tmp_path: Path) -> None:
    """T8: words go; ids, order and hashes stay."""
    erase = "UPDATE instructions SET guidance = '', why = '', erase_time = propose_time"

    assert await _found(whole, tmp_path, erase) == []


# A statement or more, and exactly what is found then.
DAMAGE: dict[str, tuple[str, list[str]]] = {
    "a set gone": (
        "DELETE FROM instruction_sets WHERE number = 3",
        [
            "set 3 of Tagger: the feed tells of it, and it is not there (T9)",
            "set 3 of Tagger: there is none, and there are later ones (T4.1)",
        ],
    ),
    "another hash": (
        "UPDATE instruction_sets SET hash = 'h' WHERE number = 3",
        ["set 3 of Tagger: its hash is not that of its members (T4.2)"],
    ),
    "a member that was never made active": (
        "UPDATE instruction_sets SET members = replace(members, ']', ',\"' || :proposed || '\"]') WHERE number = 3",
        [
            "set 3 of Tagger: it is not the set before it without what was retired (T4.1)",
            "set 3 of Tagger: its hash is not that of its members (T4.2)",
            "set 3 of Tagger: its members do not stand in the order in which they are sent (T4.2)",
        ],
    ),
    "a member that is not there": (
        "UPDATE instruction_sets SET members = replace(members, ']', ',\"none\"]') WHERE number = 4",
        [
            "set 4 of Tagger: it has members that are not there: none (T4.2)",
            "set 4 of Tagger: it is not the set before it with what was made active (T4.1)",
        ],
    ),
    "another order": (
        "UPDATE instruction_sets SET members = '[\"' || :tags || '\",\"' || :first || '\"]' WHERE number = 5",
        [
            "set 5 of Tagger: its hash is not that of its members (T4.2)",
            "set 5 of Tagger: its members do not stand in the order in which they are sent (T4.2)",
        ],
    ),
    "a rollback to another set": (
        "UPDATE instruction_sets SET restored_from = 1 WHERE number = 5",
        ["set 5 of Tagger: it is not what was active in the set that it goes back to (T4.3)"],
    ),
    "a rollback to what is yet to come": (
        "UPDATE instruction_sets SET restored_from = 9 WHERE number = 5",
        ["set 5 of Tagger: it is not what was active in the set that it goes back to (T4.3)"],
    ),
    "another change": (
        "UPDATE instruction_sets SET change = 'RETIRED' WHERE number = 4",
        [
            "instruction :gone: it is RETIRED, and no set of its agent activated it (T2.2)",
            "set 4 of Tagger: it is not the set before it without what was retired (T4.1)",
        ],
    ),
    "a set that a program made": (
        "UPDATE instruction_sets SET by = replace(by, 'PERSON', 'SERVICE') WHERE number = 3",
        ["set 3 of Tagger: no person who speaks for themselves made it (T2.2)"],
    ),
    "a set that is not told": (
        "DELETE FROM teaching_feed WHERE kind = 'instructions_changed' AND detail = '3'",
        ["set 3 of Tagger: the feed does not tell of it (T9)"],
    ),
    "an instruction gone": (
        "DELETE FROM instructions WHERE id = :gone",
        [
            "instruction :gone: the feed tells of it, and it is not there (T9)",
            "set 4 of Tagger: it has members that are not there: :gone (T4.2)",
            "task :task, receipt 1: it names what is not there: :gone (T6.1)",
        ],
    ),
    "active by nobody's word": (
        "UPDATE instructions SET state = 'ACTIVE' WHERE id = :proposed",
        [
            "instruction :proposed: it is ACTIVE, and no set of its agent activated it (T2.2)",
            "instruction :proposed: it is ACTIVE, and no person reviewed it (T2.2)",
            "instruction :proposed: it is ACTIVE, and the newest set says otherwise (T2.3)",
        ],
    ),
    "active after it was retired": (
        "UPDATE instructions SET state = 'ACTIVE' WHERE id = :gone",
        ["instruction :gone: it is ACTIVE, and the newest set says otherwise (T2.3)"],
    ),
    "retired, and a member still": (
        "UPDATE instructions SET state = 'RETIRED' WHERE id = :first",
        ["instruction :first: it is RETIRED, and the newest set says otherwise (T2.3)"],
    ),
    "reviewed by a program": (
        "UPDATE instructions SET reviewed_by = replace(reviewed_by, 'PERSON', 'SERVICE') WHERE id = :rejected",
        ["instruction :rejected: it is REJECTED, and no person reviewed it (T2.2)"],
    ),
    "other words": (
        "UPDATE instructions SET guidance = 'Latin name first.' WHERE id = :proposed",
        ["instruction :proposed: its guidance is not what its hash was taken over (T2.5)"],
    ),
    "other words, that were sent": (
        "UPDATE instructions SET guidance = 'With prices.' WHERE id = :gone",
        [
            "instruction :gone: its guidance is not what its hash was taken over (T2.5)",
            "task :task, receipt 1: its hash is not that of the text that was sent (T5.5)",
        ],
    ),
    "another first set": (
        "UPDATE instructions SET first_set = 7 WHERE id = :gone",
        ["instruction :gone: it was made active first by another set than it says (T4.2)"],
    ),
    "a proposal that is not told": (
        "DELETE FROM teaching_feed WHERE subject = :proposed",
        ["instruction :proposed: the feed does not tell of it (T9)"],
    ),
    "other sources": (
        "DELETE FROM sources",
        ["instruction :first: the rows of what it was drawn from do not say what it says (T6.3)"],
    ),
    "a row that cannot be read": (
        "UPDATE instructions SET state = 'ASLEEP' WHERE id = :proposed",
        ["agent Tagger: a row of it cannot be read (T4.1)"],
    ),
    "a receipt gone": (
        "DELETE FROM receipts WHERE task_id = :task AND take_up = 0",
        [
            "task :task: its receipts are not numbered 0, 1, … (T6.1)",
            "task :task: the rows by which work is found do not say what it was sent (T6.3)",
        ],
    ),
    "a receipt of another text": (
        "UPDATE receipts SET sha256 = 'h' WHERE task_id = :task AND take_up = 0",
        ["task :task, receipt 0: its hash is not that of the text that was sent (T5.5)"],
    ),
    "a receipt of another set": (
        "UPDATE receipts SET set_number = 3 WHERE task_id = :task AND take_up = 0",
        ["task :task, receipt 0: there is no set 3 of Tagger with this hash (T6.1)"],
    ),
    "a receipt that left something out": (
        "UPDATE receipts SET left_out = 1 WHERE task_id = :task AND take_up = 0",
        ["task :task, receipt 0: it is not what applied to the work in that set (T5.1)"],
    ),
    "work that is not found": (
        "DELETE FROM sent WHERE task_id = :task AND instruction_id = :tags",
        ["task :task: the rows by which work is found do not say what it was sent (T6.3)"],
    ),
    "a task gone": (
        "DELETE FROM tasks WHERE id IN (:early, :task)",
        [
            "correction :correction: its task is not there (T1.1)",
            "task :early: there are receipts of it, and no task (T6.1)",
            "task :task: it proposed something, and is not there (T6.1)",
            "task :task: it was sent something, and is not there (T6.1)",
            "task :task: there are receipts of it, and no task (T6.1)",
        ],
    ),
    "a correction gone": (
        "DELETE FROM corrections",
        [
            "correction :correction: the feed tells of it, and it is not there (T9)",
            "instruction :first: what it was drawn from is not there (T2.1)",
            "request the-first of CorrectWork: the correction that it came to is not there (T1.1)",
        ],
    ),
    "a correction that is not told": (
        "DELETE FROM teaching_feed WHERE kind = 'work_corrected'",
        ["correction :correction: the feed does not tell of it (T9)"],
    ),
    "a proposal gone": (
        "DELETE FROM instructions WHERE id = :proposed",
        [
            "instruction :proposed: the feed tells of it, and it is not there (T9)",
            "request proposed of ProposeInstruction: the instruction that it came to is not there (T2.1)",
        ],
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_each_damage_is_found_and_nothing_else(whole: Whole, tmp_path: Path, damage: str) -> None:
    """What, where, and the rule."""
    statements, expected = DAMAGE[damage]

    assert await _found(whole, tmp_path, statements) == sorted(expected)


async def _found(whole: Whole, into: Path, statements: str) -> list[str]:
    """Run statements on a copy, past what the database itself would refuse, and return what is found in it."""
    folder, names = whole
    shutil.copy(folder / "teaching.db", into / "teaching.db")
    with closing(sqlite3.connect(into / "teaching.db", isolation_level=None)) as database:
        # A copy that is lost with the machine is no loss.
        database.execute("PRAGMA synchronous = OFF")
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        for one in statements.split(";"):
            assert database.execute(one, names).rowcount > 0, one
    found = "\n".join(await wrong_in(into))
    for name, known in sorted(names.items(), key=lambda item: -len(item[1])):
        found = re.sub(rf"{re.escape(known)}\b", f":{name}", found)
    return sorted(found.splitlines())
