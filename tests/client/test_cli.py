"""The command line: tokens, turns, approvals, and how each command finds the runtime."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from tutelage.cli.exits import Exit
from tutelage.common.v1.principal_pb2 import PRINCIPAL_KIND_PERSON, Principal
from tutelage.runtime.v1.approvals_pb2 import (
    APPROVAL_STATE_APPROVED,
    APPROVAL_STATE_DENIED,
    APPROVAL_STATE_PENDING,
    DECISION_APPROVE,
    DECISION_DENY,
    Answer,
    Approval,
    ApprovalSettled,
    DecideApprovalResponse,
    GetApprovalResponse,
    ListApprovalsResponse,
    Waiting,
    WatchApprovalsResponse,
)
from tutelage.runtime.v1.journal_pb2 import ModelReplied, Record, RequestedCall, TurnGiven
from tutelage.runtime.v1.turns_pb2 import (
    TURN_STATE_INTERRUPTED,
    GetTurnResponse,
    ListRecordsResponse,
    Receipt,
    Turn,
    UnfinishedCall,
    Work,
)

from tests.client.commands import Ran, finished, heard, ran, started
from tests.client.runtime_double import RuntimeDouble, refuse

GUS = Principal(id="gus", kind=PRINCIPAL_KIND_PERSON)


class Person:
    """Somebody at a terminal, signed in at the double."""

    def __init__(self, double: RuntimeDouble, folder: Path) -> None:
        self.folder = folder
        self.settings = {"TUTELAGE_TO_RUNTIME": double.address, "TUTELAGE_TOKEN": "hales-token"}

    async def runs(self, *arguments: str) -> Ran:
        return await ran(*arguments, cwd=self.folder, **self.settings)


@pytest.fixture
def hale(double: RuntimeDouble, tmp_path: Path) -> Person:
    return Person(double, tmp_path)


def answer(response: Any) -> Any:
    async def given(request: Any, context: Any) -> Any:
        return response

    return given


def refusal(code: grpc.StatusCode, reason: str, message: str) -> Any:
    async def given(request: Any, context: Any) -> None:
        await refuse(context, code, reason, message)

    return given


def approval(**changes: Any) -> Approval:
    told: dict[str, Any] = {
        "id": "a1",
        "turn_id": "t1",
        "tool": "write_note",
        "tool_description": "Replace a note.",
        "address": "gardener/write_note#1",
        "input_json": '{"name":"todo.md","text":"one\\u202etwo"}',
        "fingerprint": "f" * 64,
        "work_for": GUS,
        "given_by": GUS,
        "put_to": ["gus", "role:supervises"],
        "state": APPROVAL_STATE_PENDING,
        "asked_by_rule": "changes (conversation)",
    }
    return Approval(**(told | changes))


# token


async def test_token_prints_the_token_alone(tmp_path: Path) -> None:
    made = await ran(
        "token", "--sub", "gus", "--kind", "person", "--role", "uses", "--role", "builds", "--tenant", "acme",
        "--claims", '{"acr": "high"}', "--expires-in", "60", "--data-dir", "data", cwd=tmp_path,
    )  # fmt: skip

    claims = jwt.decode(made.out.strip(), options={"verify_signature": False})
    assert made.code == 0
    assert made.out.count("\n") == 1
    assert claims["sub"] == "gus"
    assert claims["roles"] == ["uses", "builds"]
    assert claims["tenant"] == "acme"
    assert claims["acr"] == "high"
    assert claims["exp"] - claims["iat"] == 60


async def test_tokens_of_one_folder_have_one_key(tmp_path: Path) -> None:
    """The folder is the one that the services use: by option, by TUTELAGE_DATA_DIR, or ./tutelage-data."""
    arguments = ("token", "--sub", "gus", "--kind", "person")

    made = [
        await ran(*arguments, cwd=tmp_path),
        await ran(*arguments, cwd=tmp_path, TUTELAGE_DATA_DIR=str(tmp_path / "tutelage-data")),
        await ran(*arguments, "--data-dir", "tutelage-data", cwd=tmp_path),
        await ran(*arguments, "--data-dir", "other", cwd=tmp_path),
    ]

    ids = [jwt.get_unverified_header(each.out.strip())["kid"] for each in made]
    assert ids[0] == ids[1] == ids[2] != ids[3]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("token", "--sub", "gus"), "--kind"),
        (("token", "--sub", "gus", "--kind", "robot"), "robot"),
        (("token", "--sub", "gus", "--kind", "person", "--claims", "[]"), "--claims"),
        (("approvals", "deny", "a1"), "--reason"),
        (("paint",), "paint"),
    ],
)
async def test_wrong_usage_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    made = await ran(*arguments, cwd=tmp_path)

    assert named in made.refused(code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("approvals",), ""),
        (("turn", "show"), "Missing argument 'TURN'. See `tutelage turn show --help`."),
        (("approvals", "denny"), "No such command 'denny'. Did you mean 'deny'? See `tutelage approvals --help`."),
    ],
)
async def test_wrong_usage_points_to_the_help_of_its_own_command(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """A group alone shows its help, and nothing on stderr."""
    made = await ran(*arguments, cwd=tmp_path)

    assert made.code == 2
    assert made.err == (f"tutelage: {said}\n" if said else "")
    assert ("watch" in made.out) == (not said)


async def test_a_new_key_is_told_of_and_only_once(tmp_path: Path) -> None:
    """In another folder than the services' a token is of no use, and nobody would know why."""
    arguments = ("token", "--sub", "gus", "--kind", "person")

    first, second = [await ran(*arguments, cwd=tmp_path) for _ in range(2)]

    assert first.err == (
        "tutelage: tutelage-data had no key, so one was made. Only services on that folder trust it.\n"
    )
    assert second.err == ""


async def test_an_id_that_is_none_is_one_line(tmp_path: Path) -> None:
    made = await ran("token", "--sub", "two words", "--kind", "person", cwd=tmp_path)

    assert "sub must be" in made.refused()


# What a command needs to reach the runtime


async def test_without_a_runtime_it_says_how_to_start_one(tmp_path: Path) -> None:
    made = await ran("approvals", "list", cwd=tmp_path, TUTELAGE_TOKEN="x")

    assert "tutelage up" in made.refused(Exit.UNREACHABLE)


async def test_without_a_token_it_says_how_to_make_one_and_makes_none(double: RuntimeDouble, tmp_path: Path) -> None:
    """The data folder's key could sign anybody in; nobody is made a person in silence."""
    await ran("token", "--sub", "x", "--kind", "service", cwd=tmp_path)

    made = await ran("turn", "show", "t1", cwd=tmp_path, TUTELAGE_TO_RUNTIME=double.address)

    assert "export TUTELAGE_TOKEN=$(tutelage token " in made.refused()
    assert double.turns.asked == []


async def test_a_runtime_that_is_gone_is_one_line(tmp_path: Path) -> None:
    made = await ran("approvals", "watch", cwd=tmp_path, TUTELAGE_TOKEN="x", TUTELAGE_TO_RUNTIME="127.0.0.1:1")

    assert "cannot be reached" in made.refused(Exit.UNREACHABLE)


async def test_a_refusal_is_one_line_that_says_what_to_do(double: RuntimeDouble, hale: Person) -> None:
    double.turns.answers = [
        refusal(grpc.StatusCode.UNAUTHENTICATED, "NOT_SIGNED_IN", "The token has expired.\nReally\u202e.")
    ]

    made = await hale.runs("turn", "show", "t1")

    line = made.refused()
    assert "The token has expired.\\nReally\\u{202e}." in line
    assert "tutelage token" in line


# turn show


def laid_down_turn() -> tuple[Turn, list[Record]]:
    turn = Turn(
        id="t1",
        agent="gardener",
        work=Work(input="Merge\u202e."),
        work_for=GUS,
        given_by=GUS,
        state=TURN_STATE_INTERRUPTED,
        cause="A tool may have run.",
        writer=2,
        unfinished=[UnfinishedCall(call_id="c7", tool="write_note", input_json='{"name":"todo.md"}', host="nursery")],
        receipts=[Receipt(path="gardener", instruction_set=3, instructions_hash="abc123")],
    )
    records = [
        Record(line=1, writer=1, turn_given=TurnGiven(given_by=GUS, agent="gardener", input="Merge.")),
        Record(
            line=2,
            writer=1,
            address="gardener",
            chain="c0ffee",
            model_replied=ModelReplied(
                text="I\u200b write.",
                calls=[RequestedCall(invocation=1, tool="write_note", input_json='{"name":"todo.md"}')],
            ),
        ),
    ]  # fmt: skip
    return turn, records


async def test_a_turn_is_shown_with_all_that_hides_escaped(double: RuntimeDouble, hale: Person) -> None:
    """D8, scenario 28."""
    turn, records = laid_down_turn()
    double.turns.answers = [
        answer(GetTurnResponse(turn=turn)),
        answer(ListRecordsResponse(records=records[:1], next_page_token="more")),
        answer(ListRecordsResponse(records=records[1:])),
    ]

    made = await hale.runs("turn", "show", "t1")

    assert made.code == 0, made.err
    for told in (
        "INTERRUPTED", "Merge\\u{202e}.", "gus", "A tool may have run.", "c7", "nursery", "abc123",
        "gus asks gardener: Merge.", 'I\\u{200b} write. | write_note#1 {"name":"todo.md"}',
        "chain head  c0ffee",
    ):  # fmt: skip
        assert told in made.out, told
    assert "\u202e" not in made.out
    assert double.turns.asked[2].page_token == "more"
    assert double.turns.metadata[0]["authorization"] == "Bearer hales-token"


async def test_a_turn_as_json_is_to_the_letter(double: RuntimeDouble, hale: Person) -> None:
    turn, records = laid_down_turn()
    double.turns.answers = [answer(GetTurnResponse(turn=turn)), answer(ListRecordsResponse(records=records))]

    made = await hale.runs("turn", "show", "t1", "--json")

    told = json.loads(made.out)
    assert told["state"] == "TURN_STATE_INTERRUPTED"
    assert told["work"]["input"] == "Merge\u202e."
    assert [record["line"] for record in told["records"]] == [1, 2]


# approvals


async def test_what_waits_is_listed_over_all_pages(double: RuntimeDouble, hale: Person) -> None:
    double.approvals.answers = [
        answer(ListApprovalsResponse(approvals=[approval()], next_page_token="more")),
        answer(ListApprovalsResponse(approvals=[approval(id="a2")])),
    ]

    made = await hale.runs("approvals", "list")

    assert made.code == 0, made.err
    assert "a1" in made.out
    assert "a2" in made.out
    assert 'text: "one\\u{202e}two"' in made.out
    assert "changes (conversation)" in made.out


async def test_nothing_waits(double: RuntimeDouble, hale: Person) -> None:
    double.approvals.answers = [answer(ListApprovalsResponse())]

    assert (await hale.runs("approvals", "list")).out == "Nothing waits.\n"


async def test_a_yes_is_to_what_was_shown(double: RuntimeDouble, hale: Person) -> None:
    """D1: the fingerprint that goes along is the one of what was printed."""
    settled = approval(state=APPROVAL_STATE_APPROVED, answers=[Answer(by=Principal(id="hale"))])
    double.approvals.answers = [
        answer(GetApprovalResponse(approval=approval())),
        answer(DecideApprovalResponse(approval=settled)),
    ]

    made = await hale.runs("approvals", "approve", "a1", "--yes")

    decided = double.approvals.asked[1]
    assert made.code == 0, made.err
    assert 'name: "todo.md"' in made.out
    assert "APPROVED  write_note  a1  by hale" in made.out
    assert decided.decision == DECISION_APPROVE
    assert decided.fingerprint == "f" * 64
    assert decided.request_id


async def test_what_was_pinned_and_is_another_now_is_not_approved(double: RuntimeDouble, hale: Person) -> None:
    double.approvals.answers = [answer(GetApprovalResponse(approval=approval()))]

    made = await hale.runs("approvals", "approve", "a1", "--yes", "--fingerprint", "0" * 64)

    assert "fingerprint" in made.refused()
    assert len(double.approvals.asked) == 1


async def test_without_a_terminal_nothing_is_approved_unasked(double: RuntimeDouble, hale: Person) -> None:
    double.approvals.answers = [answer(GetApprovalResponse(approval=approval()))]

    made = await hale.runs("approvals", "approve", "a1")

    assert "--yes" in made.refused()
    assert len(double.approvals.asked) == 1


async def test_a_no_carries_its_reason(double: RuntimeDouble, hale: Person) -> None:
    denied = approval(state=APPROVAL_STATE_DENIED)
    double.approvals.answers = [answer(DecideApprovalResponse(approval=denied))]

    made = await hale.runs("approvals", "deny", "a1", "--reason", "not\ntoday")

    decided = double.approvals.asked[0]
    assert made.code == 0, made.err
    assert decided.decision == DECISION_DENY
    assert decided.reason == "not\ntoday"
    assert decided.fingerprint == ""


async def test_who_was_too_late_is_told(double: RuntimeDouble, hale: Person) -> None:
    """Scenario 26: everyone else is told who and what."""
    double.approvals.answers = [
        refusal(grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_DECIDED", "ana said no at 10:02.")
    ]

    made = await hale.runs("approvals", "deny", "a1", "--reason", "no")

    assert "ana said no at 10:02." in made.refused()


async def test_a_watch_shows_each_event_as_it_comes_and_goes_on(double: RuntimeDouble, hale: Person) -> None:
    """It begins with a word: somebody who looks at an empty screen would wonder whether it works."""

    async def first(request: Any, context: Any) -> Any:
        yield WatchApprovalsResponse(cursor="1", waiting=Waiting(turn_id="t1", approvals=[approval()]))

    async def second(request: Any, context: Any) -> Any:
        settled = approval(state=APPROVAL_STATE_DENIED, answers=[Answer(by=GUS, reason="no")])
        yield WatchApprovalsResponse(cursor="2", settled=ApprovalSettled(approval=settled))
        await asyncio.Event().wait()

    double.approvals.answers = [answer(ListApprovalsResponse())]
    double.approvals.streams = [first, second]

    async with started("approvals", "watch", cwd=hale.folder, **hale.settings) as process:
        seen = await heard(process, "DENIED")
        process.send_signal(signal.SIGINT)
        stopped = await finished(process)

    assert seen.startswith("Nothing waits yet.")
    assert "write_note  a1" in seen
    assert "DENIED  write_note  a1  by gus no" in seen
    assert double.approvals.asked[-1].cursor == "1"
    assert stopped.refused(Exit.STOPPED) == "tutelage: Stopped. To go on: `tutelage approvals watch --after 2`"
