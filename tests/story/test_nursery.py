"""The whole nursery story, as `make run YES=1` tells it, and what it left: counted in files, databases and the API."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tutelage.client import Teaching, Tutelage, connect, connect_teaching
from tutelage.runtime.v1.turns_pb2 import TURN_STATE_DONE, GetTurnRequest, ListTurnsRequest
from tutelage.service_process import ServiceProcess
from tutelage.teaching.v1.corrections_pb2 import ListCorrectionsRequest
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_CHANGE_ACTIVATED,
    INSTRUCTION_CHANGE_ROLLED_BACK,
    INSTRUCTION_STATE_RETIRED,
    ListInstructionSetsRequest,
    ListInstructionsRequest,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskRequest, ListTasksRequest
from tutelage.token import make_token, signing_key

from tests.story.nursery import set_hash, sha256, tell_story, text_of

LATIN = "Lavandula angustifolia"
GUIDANCE = "Put the common name first, the Latin name after it in brackets."


@dataclass(frozen=True, slots=True)
class Left:
    """What the story left in its folder, and both services, started again there."""

    folder: Path
    code: int
    said: str
    runtime: Tutelage
    teaching: Teaching

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    def requests(self, model: str) -> list[dict[str, Any]]:
        """What a model was asked and answered, by its own file."""
        return [json.loads(line) for line in self.lines(f"scripts/{model}.requests.jsonl")]

    def rows(self, service: str, query: str) -> list[tuple[Any, ...]]:
        """Look into a service's database."""
        with closing(sqlite3.connect(f"file:{self.folder / service}.db?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()


@pytest.fixture(scope="module")
async def left(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Left]:
    folder = tmp_path_factory.mktemp("story")
    code, said = await tell_story(folder)
    token = make_token(signing_key(folder), sub="hale", kind="person", roles=["supervises", "teaches"])
    async with AsyncExitStack() as cleanup:
        addresses = []
        for service in ("teaching", "runtime"):
            started = await ServiceProcess.start(service, folder)
            cleanup.push_async_callback(started.stop)
            addresses.append(started.address)
        teaching = await cleanup.enter_async_context(connect_teaching(addresses[0], token))
        runtime = await cleanup.enter_async_context(connect(addresses[1], token))
        yield Left(folder, code, said, runtime, teaching)


async def test_it_comes_out_as_told(left: Left) -> None:
    assert left.code == 0, left.said
    assert left.said.endswith("All of it came out as told.\n")


async def test_every_turn_is_done_and_no_reply_was_paid_twice(left: Left) -> None:
    """Four merges and five tags; each reply is one request in its model's own file, and one record."""
    turns = (await left.runtime.turns.ListTurns(ListTurnsRequest())).turns

    assert Counter(turn.agent for turn in turns) == {"gardener": 4, "tagger": 5}
    assert {turn.state for turn in turns} == {TURN_STATE_DONE}
    assert [len(left.requests(model)) for model in ("gardener", "tagger")] == [12, 7]
    assert not any("failed" in request for model in ("gardener", "tagger") for request in left.requests(model))
    assert left.rows("runtime", "SELECT count(*) FROM records WHERE kind = 'model_replied'") == [(19,)]


async def test_tools_ran_as_people_said_and_left_what_was_shown(left: Left) -> None:
    """A no ran nothing; one write ran again because a person said so; the tag is the one that was asked about last."""
    runs = [json.loads(line) for line in left.lines("tool-runs.jsonl")]

    assert Counter(run["tool"] for run in runs) == {"read_note": 8, "write_note": 4, "print_tag": 1}
    assert [run["attempt"] for run in runs if run["tool"] == "write_note"] == [1, 1, 1, 2]
    assert left.lines("tags.txt") == [LATIN]
    assert left.lines("notes/plans.md") == ["a second greenhouse"]
    assert left.lines("notes/spring.md") == ["wash the pots", "sow the leeks", "sow the sweet peas"]
    assert left.lines("notes/summer.md") == ["shade the seedlings", "water before nine"]


async def test_what_was_taught_is_a_correction_a_proposal_and_two_sets(left: Left) -> None:
    """B1, B3, B6, B11, B12."""
    [correction] = (await left.teaching.corrections.ListCorrections(ListCorrectionsRequest(agent="tagger"))).corrections
    asked = ListInstructionsRequest(agent="tagger")
    [instruction] = (await left.teaching.instructions.ListInstructions(asked)).instructions
    listed = await left.teaching.instructions.ListInstructionSets(ListInstructionSetsRequest(agent="tagger"))
    back, made = listed.sets

    assert correction.by.id == "gus"
    assert (instruction.says.guidance, instruction.state) == (GUIDANCE, INSTRUCTION_STATE_RETIRED)
    assert (instruction.proposed_by.id, instruction.reviewed_by.id) == ("gus", "hale")
    assert instruction.says.from_corrections == [correction.id]
    assert (made.number, made.change) == (1, INSTRUCTION_CHANGE_ACTIVATED)
    assert (list(made.members), made.hash) == ([instruction.id], set_hash([instruction]))
    assert (back.number, back.change, back.restored_from) == (2, INSTRUCTION_CHANGE_ROLLED_BACK, 0)
    assert (list(back.members), back.hash) == ([], set_hash([]))
    assert left.rows("teaching", "SELECT count(*) FROM instruction_sets") == [(2,)]
    assert left.rows("teaching", "SELECT state FROM instructions") == [("RETIRED",)]


async def test_each_tag_was_sent_what_stood_and_its_receipt_is_the_hash_of_it(left: Left) -> None:
    """B9, B13: over all requests that the model had, by its own file; and both services keep the same."""
    told = ["\n\n".join(request["system"].split("\n\n")[2:]) for request in left.requests("tagger")]
    tasks = list(reversed((await left.teaching.tasks.ListTasks(ListTasksRequest(agent="tagger"))).tasks))
    receipts = [
        (await left.runtime.turns.GetTurn(GetTurnRequest(turn_id=task.turn_id))).turn.receipts for task in tasks
    ]

    taught = text_of(GUIDANCE)
    # Two tags before it was active; one after; one asked for, taken up, and printed; one after the rollback.
    assert told == ["", "", taught, taught, "", "", ""]
    assert [[block.set_number for block in task.sent] for task in tasks] == [[0], [0], [1], [1, 2], [2]]
    assert [[block.text for block in task.sent] for task in tasks] == [[""], [""], [taught], [taught, ""], [""]]
    for task, kept in zip(tasks, receipts, strict=True):
        assert [block.sha256 for block in task.sent] == [sha256(block.text) for block in task.sent]
        assert [one.instructions_hash for one in kept] == [block.sha256 for block in task.sent]
        assert [list(one.instructions_sent) for one in kept] == [list(block.instruction_ids) for block in task.sent]


async def test_a_yes_was_refused_and_asked_anew(left: Left) -> None:
    """B13: of the tagger's two questions one was superseded, and the other let the tool run."""
    query = "SELECT state FROM approvals WHERE agent = 'tagger' ORDER BY seq"

    assert left.rows("runtime", query) == [("SUPERSEDED",), ("APPROVED",)]
    assert left.said.count("The agent's instructions changed since it asked, so nothing was decided.") == 1


async def test_the_first_tag_is_explained_as_it_was_and_as_it_is(left: Left) -> None:
    """B10: in the story, with one active since; now, after the rollback, with none."""
    first = (await left.teaching.tasks.ListTasks(ListTasksRequest(agent="tagger"))).tasks[-1]
    explained = await left.teaching.tasks.ExplainTask(ExplainTaskRequest(task_id=first.id))
    sentence = "It ran before anybody had taught tagger anything."

    assert f"{sentence} Since then 1 has been made active that it had not been sent." in left.said
    assert explained.words == sentence
