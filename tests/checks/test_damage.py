"""`check` finds each kind of damage to a runtime's database, and of a sound one says nothing (5.11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.kept import Kept, kept
from tests.sound import wrong_in


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A database with something of everything in it."""
    return await kept(tmp_path_factory.mktemp("kept"))


async def test_of_a_sound_database_nothing_is_said(whole: Kept) -> None:
    """All that the service writes holds."""
    assert await wrong_in(whole.folder) == []


# A statement or more, and exactly what is found then.
DAMAGE: dict[str, tuple[str, list[str]]] = {
    # The chain (R5.1, R5.4)
    "a byte of facts": (
        "UPDATE records SET facts = replace(facts, 'REFUSED', 'RETURNED') WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: its facts were changed (R5.4)"],
    ),
    "facts that cannot be read": (
        "UPDATE records SET facts = '{' WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: its facts were changed (R5.4)"],
    ),
    "a byte of words": (
        "UPDATE records SET words = replace(words, 'did not allow', 'allowed') WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: its words were changed (R5.4)"],
    ),
    "words that went without erasure": (
        "UPDATE records SET words = '', words_salt = x'' WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: its words were changed (R5.4)"],
    ),
    "a digest that is none": (
        "UPDATE records SET words_digest = 'nonsense' WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: its words were changed (R5.4)"],
    ),
    "another time": (
        "UPDATE records SET time = '2020-01-01 00:00:00.000000' WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: it is not what was sealed behind the record before it (R5.4)"],
    ),
    "another address": (
        "UPDATE records SET address = 'writers' WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: it is not what was sealed behind the record before it (R5.4)"],
    ),
    "a record gone": (
        "DELETE FROM records WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 8: no record is there (R5.1)"],
    ),
    "the last record gone": (
        "DELETE FROM records WHERE turn_id = :denied AND line >= 9",
        ["turn :denied, lines 9 to 10: no record is there (R5.1)"],
    ),
    "two lines swapped": (
        "UPDATE records SET line = -line WHERE turn_id = :denied AND line IN (8, 9);"
        "UPDATE records SET line = 17 + line WHERE turn_id = :denied AND line < 0",
        [
            "turn :denied, line 10: it is not what was sealed behind the record before it (R5.4)",
            "turn :denied, line 8: it is not what was sealed behind the record before it (R5.4)",
            "turn :denied, line 9: it is not what was sealed behind the record before it (R5.4)",
        ],
    ),
    "a record more": (
        "UPDATE turns SET line = 9 WHERE id = :denied",
        ["turn :denied: its row ends at line 9, its journal at 10 (R5.1)"],
    ),
    "another chain head": (
        "UPDATE turns SET chain = (SELECT chain FROM records WHERE turn_id = :denied AND line = 9) WHERE id = :denied",
        ["turn :denied: the chain in its row is not that of its last record (R5.4)"],
    ),
    # The turn's row
    "a row that cannot be read": (
        "UPDATE turns SET state = 'ASLEEP' WHERE id = :failed",
        ["turn :failed: a row of it cannot be read (R5.1)"],
    ),
    "another state": (
        "UPDATE turns SET state = 'ABANDONED' WHERE id = :failed",
        ["turn :failed: it is ABANDONED, and its journal ended as FAILED (R5.1)"],
    ),
    "an end that is not recorded": (
        "UPDATE turns SET state = 'DONE', cause = '', retry_time = NULL WHERE id = :stopped;"
        "UPDATE conversations SET newest_done = :stopped"
        " WHERE id = (SELECT conversation_id FROM turns WHERE id = :stopped)",
        ["turn :stopped: it is DONE, and its journal has no end (R5.1)"],
    ),
    "an end that is forgotten": (
        "UPDATE turns SET state = 'READY', cause = '' WHERE id = :abandoned",
        ["turn :abandoned: it is READY, and its journal ended as ABANDONED (R5.1)"],
    ),
    "another output": (
        "UPDATE turns SET output = 'Not done.' WHERE id = :denied",
        ["turn :denied: its output is not what its journal ended with (R5.1)"],
    ),
    "another cause": (
        "UPDATE turns SET cause = 'no cause' WHERE id = :abandoned",
        ["turn :abandoned: its cause is not what its journal ended with (R5.1)"],
    ),
    "another input": (
        "UPDATE turns SET input = 'stay' WHERE id = :denied",
        ["turn :denied, line 1: what was given is not what the turn's row says: input (R5.4)"],
    ),
    "somebody else's work": (
        "UPDATE turns SET work_for_id = 'bob' WHERE id = :denied",
        ["turn :denied: the columns that lists go by do not say whose it is (R10)"],
    ),
    "another cost": (
        "UPDATE turns SET usage = '{\"model_requests\":1}' WHERE id = :denied",
        ["turn :denied: its usage is not what its records add up to (R5.3)"],
    ),
    "another writer": (
        "UPDATE turns SET writer = 5 WHERE id = :denied",
        ["turn :denied: its row names writer 5, its journal 2 (R5.1)"],
    ),
    "a turn that nobody holds": (
        "UPDATE turns SET state = 'RUNNING', cause = '', retry_time = NULL, awaits_tools = '[]' WHERE id = :stopped",
        ["turn :stopped: it is RUNNING, and its writer is not the process that holds it (R5.1)"],
    ),
    "a turn that nothing makes go on": (
        "UPDATE turns SET state = 'WAITING', cause = '' WHERE id = :stopped",
        ["turn :stopped: it is WAITING, and nothing of it waits (R3.1)"],
    ),
    "an interruption that is not told": (
        "DELETE FROM turn_feed WHERE subject = :stopped",
        ["turn :stopped: it is INTERRUPTED, and its feed does not tell (R11)"],
    ),
    # Approvals
    "an approval gone": (
        "DELETE FROM approvals WHERE id = :pending",
        [
            "approval :pending: it is put to somebody, and is not there (R10)",
            "approval :pending: its feed tells of it, and it is not there (R11)",
            "turn :waiting, line 5: there is no approval :pending (R3.1)",
            "turn :waiting: it is WAITING, and nothing of it waits (R3.1)",
        ],
    ),
    "an approval that nobody asked": (
        "UPDATE approvals SET asking_turn_id = :denied, turn_id = :denied WHERE id = :said_it;"
        "UPDATE put_to SET turn_id = :denied WHERE approval_id = :said_it;"
        "UPDATE approval_feed SET detail = :denied WHERE subject = :said_it",
        [
            "approval :said_it: its turn's journal does not say that it was asked (R3.1)",
            "turn :answered, line 5: there is no approval :said_it (R3.1)",
        ],
    ),
    "an approval of another input": (
        "UPDATE approvals SET input_json = '{\"all\":true}' WHERE id = :pending",
        ["approval :pending: it is not what was asked: input_json (R3.1)"],
    ),
    "an approval of another fingerprint": (
        "UPDATE approvals SET fingerprint = 'f' WHERE id = :pending",
        ["approval :pending: it is not what was asked: fingerprint (R3.1)"],
    ),
    "an approval for somebody else": (
        "UPDATE approvals SET scope = 'team:2', conversation_id = :talk WHERE id = :pending",
        ["approval :pending: it is not what was asked: conversation_id, scope (R3.1)"],
    ),
    "a no that became a yes": (
        "UPDATE approvals SET state = 'APPROVED' WHERE id = :said_no",
        [
            "approval :said_no: it is APPROVED by fewer people than it needs (R3.4)",
            "approval :said_no: it is APPROVED, and its journal says DENIED (R5.1)",
        ],
    ),
    "a program's no": (
        "UPDATE approvals SET answers = replace(answers, 'PERSON', 'SERVICE') WHERE id = :said_no",
        [
            "approval :said_no: somebody answered who is not a person (R3.4)",
            "turn :denied, line 7: it is not what people answered (R5.1)",
        ],
    ),
    "an answer that is forgotten": (
        "UPDATE approvals SET state = 'PENDING' WHERE id = :said_no",
        [
            "approval :said_no: it is PENDING, and was answered (R3.4)",
            "approval :said_no: it waits, and somebody went on without it (R3.1)",
            "approval :said_no: its journal says DENIED, and it is PENDING (R5.1)",
        ],
    ),
    "a yes that is used no more": (
        "UPDATE approvals SET used = 0 WHERE id = :yes",
        [
            "call :call: it started on a yes that is none: :yes (R3.6)",
            "turn :done, line N: it was asked about, and starts without a yes (R3.4)",
        ],
    ),
    "an approval that stays open": (
        "UPDATE approvals SET closed = 0 WHERE id = :said_no",
        ["approval :said_no: its call has a result, and it is not closed (R3.3)"],
    ),
    "an outcome that did not come": (
        "UPDATE approvals SET outcome = 'all well' WHERE id = :yes",
        ["approval :yes: its outcome is not what came of its call (R5.1)"],
    ),
    "put to nobody": (
        "DELETE FROM put_to WHERE approval_id = :pending",
        ["approval :pending: the rows that say to whom it is put do not say what it says (R10)"],
    ),
    "a question that is not told": (
        "DELETE FROM approval_feed WHERE subject = :pending",
        ["approval :pending: its feed does not tell that it is waiting (R11)"],
    ),
    "an answer that is not told": (
        "DELETE FROM approval_feed WHERE subject = :said_no AND kind = 'settled'",
        ["approval :said_no: its feed does not tell that it is settled (R11)"],
    ),
    # Calls
    "a call gone": (
        "DELETE FROM calls WHERE id = :left",
        ["turn :abandoned, line 5: there is no call :left (R5.2)"],
    ),
    "a call of another input": (
        "UPDATE calls SET input_json = '{\"all\":true}', host = 'other' WHERE id = :open",
        ["call :open: it is not what started: host, input_json (R5.2)"],
    ),
    "a result that nobody gave": (
        "UPDATE calls SET result = NULL, open = 1, to_copy = 0, result_copied = 0 WHERE id = :call",
        [
            "call :call: it has a result in the journal, and its row has none (R5.1)",
            "turn :done, line N: its result is nobody's word (R6.5)",
            "turn :done: it has ended, and a call is under way (R6.5)",
        ],
    ),
    "another result": (
        "UPDATE calls SET result = replace(result, 'ok', 'no') WHERE id = :call",
        ["turn :done, line N: its result is nobody's word (R6.5)"],
    ),
    "another late result": (
        "UPDATE calls SET result = replace(result, 'late', 'soon') WHERE id = :attempt1",
        ["turn :again, line N: it is not what its host said (R6.6)"],
    ),
    "a result that was copied nowhere": (
        'UPDATE calls SET result = \'{"outcome":"RETURNED","text":"1"}\', unfinished = 0, open = 0,'
        " result_copied = 1 WHERE id = :left",
        ["call :left: its row says that its result was copied; its journal has none (R5.1)"],
    ),
    "a word of a person that nobody said": (
        "UPDATE calls SET resolution = NULL, resolution_copied = 0 WHERE id = :attempt1",
        [
            "turn :again, line N: it starts again, and neither its host nor a person said that it may (R6.5)",
            "turn :again, line N: no person said this (R6.5)",
        ],
    ),
    "a call that is nobody's to say": (
        "UPDATE calls SET unfinished = 0 WHERE id = :left",
        ["turn :abandoned: it has ended, and a call is under way (R6.5)"],
    ),
    "a call that its index does not find": (
        "UPDATE calls SET open = 0 WHERE id = :open",
        ["call :open: its row says otherwise than its words whether it is open (R5.1)"],
    ),
    "a session that never was": (
        "UPDATE sessions SET number = 1 WHERE incarnation = :incarnation",
        [
            "call :attempt2: its incarnation :incarnation never began session 2 (R6.6)",
            "call :left: its incarnation :incarnation never began session 2 (R6.6)",
            "call :open: its incarnation :incarnation never began session 2 (R6.6)",
        ],
    ),
    # Conversations
    "a number twice": (
        "UPDATE turns SET number = 1 WHERE id = :queued",
        [
            "conversation :busy: its turns are not numbered 1 to 2 (R9)",
            "turn :queued: it is QUEUED, and behind nobody (R9)",
        ],
    ),
    "a delegate that remembers something else": (
        "UPDATE delegate_calls SET output = 'Noted again.'",
        ["turn :remembered, line 9: what a delegate remembers is not what it returned (R9)"],
    ),
    "a delegate that remembers what was not": (
        "UPDATE delegate_calls SET line = 10",
        ["turn :remembered, line 10: a delegate remembers a call that did not return here (R9)"],
    ),
    "a delegate that remembers a turn that is not there": (
        "UPDATE delegate_calls SET turn_id = 'none'",
        ["turn none: what a delegate remembers of it is there, and no turn (R9)"],
    ),
    "a turn that was never counted": (
        "UPDATE conversations SET turns = 2 WHERE id = :talk",
        ["conversation :talk: its turns are not numbered 1 to 2 (R9)"],
    ),
    "another newest": (
        "UPDATE conversations SET newest_done = '' WHERE id = :talk",
        ["conversation :talk: its newest turn that is done is another (R9)"],
    ),
    "a turn behind nothing": (
        "UPDATE turns SET after_turn_id = :denied WHERE id = :queued",
        [
            "turn :queued: it follows a turn of its conversation that is not done (R9)",
            "turn :queued: it is QUEUED, and behind nobody (R9)",
        ],
    ),
    # What is not there
    "a turn gone": (
        "DELETE FROM turns WHERE id = :done",
        [
            "approval *: its turn is not there (R3.1)",
            "approval *: its turn is not there (R3.1)",
            "approval :yes: its turn is not there (R3.1)",
            "call *: its turn is not there (R5.1)",
            "call :call: its turn is not there (R5.1)",
            "conversation :talk: its newest turn that is done is another (R9)",
            "conversation :talk: its turns are not numbered 1 to 1 (R9)",
            "request the-first of StartTurn: the turn that it came to is not there (R9)",
            "turn :done: there are records of it, and no turn (R5.1)",
        ],
    ),
    "a conversation gone": (
        "DELETE FROM conversations WHERE id = :talk",
        ["turn :done: its conversation is not there (R9)"],
    ),
    "another tenant's": (
        "UPDATE calls SET tenant = 'other' WHERE id = :left",
        ["call :left: its turn is not there (R5.1)"],
    ),
    "another tenant's records": (
        "UPDATE records SET tenant = 'other' WHERE turn_id = :stopped AND line = 4",
        ["turn :stopped: there are records of it, and no turn (R5.1)"],
    ),
    "an agent gone": (
        "DELETE FROM agents WHERE name = 'hand'",
        ["turn :done, line N: there is no version * of hand (R6.2)"],
    ),
    "a feed about nothing": (
        "UPDATE approval_feed SET subject = 'none' WHERE subject = :pending",
        [
            "approval :pending: its feed does not tell that it is waiting (R11)",
            "approval none: its feed tells of it, and it is not there (R11)",
        ],
    ),
    "a stop of nothing": (
        "INSERT INTO turn_feed (tenant, kind, subject, detail, time)"
        " SELECT tenant, kind, 'none', detail, time FROM turn_feed WHERE subject = :stopped LIMIT 1",
        ["turn none: its feed tells of it, and it is not there (R11)"],
    ),
    "a root that is not there": (
        "UPDATE turns SET root_id = 'none' WHERE id = :queued",
        ["turn :queued: the turn that it is part of is not there (R7)"],
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_each_damage_is_found_and_nothing_else(whole: Kept, tmp_path: Path, damage: str) -> None:
    """What, where, and the rule."""
    statements, expected = DAMAGE[damage]

    found = await wrong_in(whole.damaged(tmp_path, statements))

    assert sorted(map(whole.named, found)) == expected


# A forged journal is whole: what it says is held to itself and to the rows. Whose, how, and what is found then.
FORGED: dict[str, tuple[str, str, list[str]]] = {
    "no end": (
        "denied",
        "DELETE FROM records WHERE turn_id = :denied AND kind = 'turn_ended'",
        ["turn :denied: it is DONE, and its journal has no end (R5.1)"],
    ),
    "something behind the end": (
        "failed",
        "INSERT INTO records SELECT turn_id, 9, tenant, writer, time, address, kind, facts, words, words_salt,"
        " words_digest, content_digest, chain, erase_time FROM records WHERE turn_id = :failed AND line = 3",
        [
            "turn :failed, line 6: a task begins twice at one address (R6.2)",
            "turn :failed, line 6: it stands behind the turn's end (R5.1)",
        ],
    ),
    "nothing was given": (
        "stopped",
        "DELETE FROM records WHERE turn_id = :stopped AND line = 1;"
        "UPDATE turn_feed SET detail = '4' WHERE subject = :stopped",
        ["turn :stopped, line 1: line 1, and no other, says what was given (R5.4)"],
    ),
    "a writer that never took the turn": (
        "denied",
        "DELETE FROM records WHERE turn_id = :denied AND line = 6",
        [f"turn :denied, line {line}: writer 2 adds to it, and has not taken the turn (R5.1)" for line in (6, 7, 8, 9)]
        + [
            "turn :denied: its row names writer 2, its journal 1 (R5.1)",
            "turn :denied: its usage is not what its records add up to (R5.3)",
        ],
    ),
    "a writer that begins twice": (
        "denied",
        "UPDATE records SET writer = 1 WHERE turn_id = :denied; UPDATE turns SET writer = 1 WHERE id = :denied",
        ["turn :denied, line 6: writer 1 begins twice (R5.1)"],
    ),
    "an answer that was not taken, and fitted": (
        "remembered",
        "DELETE FROM records WHERE turn_id = :remembered AND kind = 'output_did_not_fit';"
        "UPDATE delegate_calls SET line = 8",
        ["turn :remembered, line 7: the model was asked again after it handed back what fits (R6.2)"],
    ),
    "a call without a result": (
        "denied",
        "DELETE FROM records WHERE turn_id = :denied AND kind = 'tool_done'",
        [
            "approval :said_no: it is closed, and its call has no result (R3.3)",
            "turn :denied, line 8: the model was asked again before each of its calls had a result (R3.3)",
            "turn :denied, line 9: the turn is done, and calls of writer have no result (R4)",
        ],
    ),
    "two results of one call": (
        "denied",
        "UPDATE records SET line = 99 WHERE turn_id = :denied AND line = 10;"
        "INSERT INTO records SELECT turn_id, 10, tenant, writer, time, address, kind, facts, words, words_salt,"
        " words_digest, content_digest, chain, erase_time FROM records WHERE turn_id = :denied AND line = 8",
        ["turn :denied, line 10: its call had a result already (R4)"],
    ),
    "a call that nobody made": (
        "failed",
        'UPDATE records SET kind = \'decided_at_once\', facts = \'{"invocation":7,"tool":"read","verdict":"RUN"}\','
        " words = '' WHERE turn_id = :failed AND line = 3",
        [
            "turn :failed, line 3: the model made no call 7 of read (R6.2)",
            "turn :failed, line 4: a model replied in a task that never began (R6.2)",
        ],
    ),
    "calls that are not numbered": (
        "failed",
        "UPDATE records SET facts = replace(facts, '\"invocation\":1', '\"invocation\":3')"
        " WHERE turn_id = :failed AND line = 4",
        ["turn :failed, line 4: the calls of its replies are not numbered 1, 2, … (R6.2)"],
    ),
    "other words handed back": (
        "denied",
        "UPDATE records SET words = replace(words, 'Done.', 'All done.') WHERE turn_id = :denied AND line = 10;"
        "UPDATE turns SET output = 'All done.' WHERE id = :denied",
        ["turn :denied, line 10: it hands back something else than its agent's last reply (R5.1)"],
    ),
    "another input than was asked for": (
        "waiting",
        "UPDATE records SET words = replace(words, '{}', '{\\\"all\\\":1}') WHERE turn_id = :waiting AND line = 5",
        [
            "approval :pending: it is not what was asked: input_json (R3.1)",
            "turn :waiting, line 5: its input is not what the model asked for (R2.7)",
            "turn :waiting, line 5: the fingerprint is not that of what was asked (R3.5)",
        ],
    ),
    "another fingerprint": (
        "waiting",
        'UPDATE records SET facts = replace(facts, \'"fingerprint":"\', \'"fingerprint":"0\')'
        " WHERE turn_id = :waiting AND line = 5;"
        "UPDATE approvals SET fingerprint = '0' || fingerprint WHERE id = :pending",
        ["turn :waiting, line 5: the fingerprint is not that of what was asked (R3.5)"],
    ),
    "a task of another id": (
        "failed",
        "UPDATE records SET facts = replace(facts, '/writer', '/reader') WHERE turn_id = :failed AND line = 3",
        ["turn :failed, line 3: the task's id is not its turn's and its address (R6.4)"],
    ),
    "tools that are not kept": (
        "failed",
        'UPDATE records SET facts = replace(facts, \'"tools_hash":"\', \'"tools_hash":"0\')'
        " WHERE turn_id = :failed AND line = 3",
        ["turn :failed, line 3: the tools that its model was shown are not kept (R6.2)"],
    ),
    "a call that starts twice": (
        "stopped",
        "INSERT INTO records SELECT turn_id, 6, tenant, writer, time, address, kind, facts, words, words_salt,"
        " words_digest, content_digest, chain, erase_time FROM records WHERE turn_id = :stopped AND line = 5;"
        "UPDATE turn_feed SET detail = '6' WHERE subject = :stopped",
        ["turn :stopped, line 6: call :open starts twice (R6.5)"],
    ),
    "an attempt that was left out": (
        "stopped",
        "UPDATE records SET facts = replace(facts, '\"attempt\":1', '\"attempt\":2')"
        " WHERE turn_id = :stopped AND line = 5; UPDATE calls SET attempt = 2 WHERE id = :open",
        ["turn :stopped, line 5: attempt 2 stands where 1 is due (R6.5)"],
    ),
    "a start that is not recorded": (
        "abandoned",
        "DELETE FROM records WHERE turn_id = :abandoned AND kind = 'tool_started'",
        ["call :left: its turn's journal does not say that it started (R5.2)"],
    ),
    "an answer that is not recorded": (
        "denied",
        "DELETE FROM records WHERE turn_id = :denied AND kind = 'approval_recorded'",
        ["approval :said_no: it is DENIED, and its journal says nothing (R5.1)"],
    ),
    "a question that is not recorded": (
        "denied",
        "DELETE FROM records WHERE turn_id = :denied AND kind = 'approval_asked'",
        [
            "approval :said_no: its turn's journal does not say that it was asked (R3.1)",
            "turn :denied, line 6: this was never asked here (R5.1)",
        ],
    ),
    "a late result that is not recorded": (
        "again",
        "DELETE FROM records WHERE turn_id = :again AND kind = 'late_result'",
        ["call :attempt1: its row says that its late result was copied; its journal has none (R6.6)"],
    ),
    "a word that is not recorded": (
        "again",
        "DELETE FROM records WHERE turn_id = :again AND kind = 'unfinished_resolved'",
        ["call :attempt1: its row says that what a person said of it was copied; its journal has none (R5.1)"],
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
async def test_a_journal_that_was_forged_whole_is_found_out(whole: Kept, tmp_path: Path, forgery: str) -> None:
    """Chains alone prove nothing to whoever can write all of it: rows and journal are held to each other."""
    turn, statements, expected = FORGED[forgery]

    found = await wrong_in(whole.damaged(tmp_path, statements, turn))

    assert sorted(map(whole.named, found)) == sorted(expected)


async def test_erased_words_are_no_damage(whole: Kept, tmp_path: Path) -> None:
    """R5.4: erasure removes words and salt; facts stay, and stay proven."""
    erase = "UPDATE records SET words = '', words_salt = x'', erase_time = time WHERE words <> ''"

    assert await wrong_in(whole.damaged(tmp_path, erase)) == []
