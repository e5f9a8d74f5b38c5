"""`tutelage teach`, as people run it against a teaching service that is real."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tutelage.cli.exits import Exit
from tutelage.client import Teaching, connect_teaching
from tutelage.common.v1.principal_pb2 import PRINCIPAL_KIND_PERSON, Principal
from tutelage.service_process import ServiceProcess
from tutelage.teaching.v1.corrections_pb2 import SEVERITY_MISTAKE, ListCorrectionsRequest
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_STATE_PROPOSED,
    INSTRUCTION_STATE_REJECTED,
    GetInstructionRequest,
    GetInstructionSetRequest,
    Instruction,
    InstructionSet,
    ReviseInstructionRequest,
)
from tutelage.teaching.v1.tasks_pb2 import BeginTaskRequest
from tutelage.token import Kind, make_token, signing_key

from tests.client.commands import Ran, finished, ran, started_at
from tests.client.runtime_double import WAIT_SECONDS

GUIDANCE = "Put the common name first."


class House:
    """A teaching service, and whoever is at a terminal there."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.folder = service.data_dir

    def token(self, who: str) -> str:
        kinds: dict[str, tuple[Kind, tuple[str, ...]]] = {
            "gus": ("person", ("uses",)),
            "hale": ("person", ("uses", "teaches")),
            "runtime": ("service", ("runtime",)),
        }
        kind, roles = kinds[who]
        return make_token(signing_key(self.folder), sub=who, kind=kind, roles=roles)

    def settings(self, who: str) -> dict[str, str]:
        return {"TUTELAGE_TO_TEACHING": self.service.address, "TUTELAGE_TOKEN": self.token(who)}

    async def runs(self, who: str, *arguments: str) -> Ran:
        """Run `tutelage teach` as somebody."""
        return await ran("teach", *arguments, cwd=self.folder, **self.settings(who))

    async def done(self, who: str, *arguments: str) -> str:
        """Run it to a good end, and return what it printed."""
        made = await self.runs(who, *arguments)
        assert made.code == 0, made
        return made.out

    async def proposes(self, guidance: str, *options: str, agent: str = "tagger", who: str = "gus") -> str:
        """Propose an instruction, and return its id as it was printed."""
        said = await self.done(who, "propose", agent, "--guidance", guidance, "--why", "Customers ask.", *options)
        found = re.match(r"instruction  (\w+)\n", said)
        assert found is not None, said
        return found[1]


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    service = await ServiceProcess.start("teaching", tmp_path_factory.mktemp("house"))
    yield House(service)
    assert await service.stop() == 0


@pytest.fixture
async def hale(house: House) -> AsyncIterator[Teaching]:
    """Hale's own connection, to look behind what was printed."""
    async with connect_teaching(house.service.address, house.token("hale")) as teaching:
        yield teaching


async def instruction(teaching: Teaching, instruction_id: str) -> Instruction:
    return (
        await teaching.instructions.GetInstruction(GetInstructionRequest(instruction_id=instruction_id))
    ).instruction


async def newest(teaching: Teaching, agent: str) -> InstructionSet:
    return (await teaching.instructions.GetInstructionSet(GetInstructionSetRequest(agent=agent))).set


async def begin(house: House, task_id: str, agent: str) -> None:
    """Begin a task as the runtime does."""
    gus = Principal(id="gus", kind=PRINCIPAL_KIND_PERSON)
    request = BeginTaskRequest(task_id=task_id, agent=agent, turn_id="t1", path=agent, work_for=gus, given_by=gus)
    async with connect_teaching(house.service.address, house.token("runtime")) as teaching:
        await teaching.tasks.BeginTask(request, metadata=[("tutelage-tenant", "default")])


async def test_a_correction_becomes_an_instruction_and_is_taken_back(house: House, hale: Teaching) -> None:
    """B1, B3, B6, B10, B12: from a task to a rollback, by commands alone."""
    await begin(house, "t1/tagger", "tagger")
    corrected = await house.done(
        "gus", "correct", "t1/tagger", "--wrong", "Latin alone.", "--right", "Lavender.", "--because", "They ask."
    )
    correction = re.match(r"correction  (\w+)\n", corrected)
    assert correction is not None
    proposal = await house.proposes(GUIDANCE, "--from", correction[1])
    proposed = await house.done("hale", "show", "tagger")
    activated = await house.done("hale", "activate", proposal, "--yes", "--why", "That is how we tag.")
    explained = await house.done("gus", "explain", "t1/tagger")
    active = await house.done("gus", "show", "tagger")
    back = await house.done("hale", "rollback", "tagger", "0", "--why", "A redesign.")
    after = await house.done("gus", "show", "tagger")

    [kept] = (await hale.corrections.ListCorrections(ListCorrectionsRequest(task_id="t1/tagger"))).corrections
    assert (kept.says.wrong, kept.says.right, kept.says.because) == ("Latin alone.", "Lavender.", "They ask.")
    assert kept.says.severity == SEVERITY_MISTAKE
    assert (await instruction(hale, proposal)).drawn_from == 1
    assert proposed.startswith("set 0 of tagger  0 active  hash 71d1506f")
    assert "Proposed, and sent to no model" in proposed
    assert f"set 1 of tagger  ACTIVATED {proposal}  1 active" in activated
    assert explained.startswith(
        "It ran before anybody had taught tagger anything. "
        "Since then 1 has been made active that it had not been sent.\n"
    )
    assert f"1  {proposal}  everything  {GUIDANCE}" in active
    assert "Proposed" not in active
    assert back.startswith("set 2 of tagger  ROLLED_BACK to set 0  0 active  hash 71d1506f")
    assert re.findall(r"^(\d) +(ROLLED_BACK|ACTIVATED|)", after, re.MULTILINE) == [
        ("2", "ROLLED_BACK"),
        ("1", "ACTIVATED"),
        ("0", ""),
    ]


async def test_what_is_active_is_shown_in_the_order_in_which_it_is_sent(house: House) -> None:
    """B7, B11: for everything, a skill, a scope, a person; the history says who and why."""
    options = (("--for", "gus"), ("--on-scope", "team:1"), ("--skill", "write"), ())
    for number, option in enumerate(options):
        proposal = await house.proposes(f"Guidance {number}.", *option, agent="sorted", who="hale")
        await house.done("hale", "activate", proposal, "--yes", "--why", f"why {number}")

    said = await house.done("hale", "show", "sorted")

    told = re.findall(r"^(\d)  \w+  ([\w: ]+?) +Guidance (\d)\.", said, re.MULTILINE)
    assert told == [
        ("1", "everything", "3"),
        ("2", "skill write", "2"),
        ("3", "scope team:1", "1"),
        ("4", "person gus", "0"),
    ]
    assert re.findall(r"hale  .*  (why \d)  ", said) == ["why 3", "why 2", "why 1", "why 0"]


async def test_whoever_may_not_see_what_is_for_another_person_sees_that_there_is_something(house: House) -> None:
    proposal = await house.proposes("Call her Ms Hale.", "--for", "hale", agent="private", who="hale")
    await house.done("hale", "activate", proposal, "--yes")

    said = await house.done("gus", "show", "private")

    assert f"\n1  {proposal}\n" in said
    assert "Ms Hale" not in said


async def test_a_proposal_is_shown_with_all_that_hides_escaped(house: House, hale: Teaching) -> None:
    """D8: a letter that looks like another is seen by whoever says yes."""
    proposal = await house.proposes("Put the n\u0430me first.", agent="escaped")

    said = await house.done("hale", "activate", proposal, "--yes")

    assert "guidance    Put the n\\u{430}me first.\n" in said
    assert (await instruction(hale, proposal)).says.guidance == "Put the n\u0430me first."


async def test_a_proposal_is_turned_down_and_an_instruction_retired(house: House, hale: Teaching) -> None:
    turned_down = await house.proposes(GUIDANCE, agent="retiring")
    active = await house.proposes("Be brief.", agent="retiring")
    await house.done("hale", "activate", active, "--yes")

    rejected = await house.done("hale", "reject", turned_down, "--why", "We do not.")
    retired = await house.done("hale", "retire", active, "--why", "No longer so.")

    assert "state       REJECTED\n" in rejected
    assert (await instruction(hale, turned_down)).state == INSTRUCTION_STATE_REJECTED
    assert retired.startswith(f"set 2 of retiring  RETIRED {active}  0 active")


async def test_what_came_and_went_between_two_sets_is_told(house: House) -> None:
    """B11, B16, C10: by words for people, by whole instructions for programs."""
    first, second = [await house.proposes(words, agent="differing") for words in ("Be brief.", "Be kind.")]
    for proposal in (first, second):
        await house.done("hale", "activate", proposal, "--yes")
    await house.done("hale", "retire", first, "--why", "No longer so.")

    diff = await house.done("gus", "diff", "differing", "1", "3")
    told = json.loads(await house.done("gus", "diff", "differing", "1", "3", "--json"))
    same = await house.done("gus", "diff", "differing", "3", "3")
    sets = json.loads(await house.done("gus", "sets", "differing", "--json"))["sets"]
    retired = await house.done("gus", "list", "differing", "--state", "retired")

    assert re.findall(r"^([+-])  (\w+)", diff, re.MULTILINE) == [("+", second), ("-", first)]
    assert [one["says"]["guidance"] for one in told["added"]] == ["Be kind."]
    assert [one["id"] for one in told["removed"]] == [first]
    assert same == "They have the same instructions.\n"
    assert [one["number"] for one in sets] == [3, 2, 1, 0]
    assert f"\nRETIRED  {first}  " in retired
    assert second not in retired


async def test_a_proposal_is_revised_and_seen_as_it_would_be_sent(house: House) -> None:
    """B6, C10: before anybody makes it active, and nothing is recorded."""
    proposal = await house.proposes("Greet in Latin.", agent="previewed")

    revised = await house.done("hale", "revise", proposal, "--guidance", "Greet in Greek.", "--why", "Better.")
    now = await house.done("gus", "preview", "previewed")
    then = await house.done("gus", "preview", "previewed", "--with", proposal)

    assert "guidance    Greet in Greek.\n" in revised
    assert now == "Nothing is sent.\n"
    assert then.endswith("\n1. Greet in Greek.\n")


async def test_corrections_are_listed_and_taken_back_by_their_writer(house: House) -> None:
    """B1, B16."""
    await begin(house, "t2/corrected", "corrected")
    says = ("--wrong", "Latin alone.", "--right", "Lavender.", "--because", "They ask.", "--json")
    correction = json.loads(await house.done("gus", "correct", "t2/corrected", *says))["id"]

    listed = await house.done("hale", "corrections", "--agent", "corrected")
    by_another = await house.runs("hale", "withdraw", correction, "--why", "No.")
    withdrawn = await house.done("gus", "withdraw", correction, "--why", "It was another task.")
    after = await house.done("gus", "corrections", "--task", "t2/corrected")

    assert f"\n{correction}  t2/corrected  Latin alone.  " in listed
    by_another.refused()
    assert re.search(r"withdrawn   \S+ \S+Z It was another task\.", withdrawn)
    assert after == "There are no such corrections.\n"


async def test_whether_an_instruction_helped_is_told_in_numbers(house: House) -> None:
    """B14: a table to compare by, the contract's message for programs; each over what they may read."""
    says = ("--wrong", "Latin alone.", "--right", "Lavender.", "--because", "They ask.", "--json")
    await begin(house, "t3/helped", "helped")
    await begin(house, "t4/helped", "helped")
    correction = json.loads(await house.done("gus", "correct", "t3/helped", *says))["id"]
    proposal = await house.proposes(GUIDANCE, "--from", correction, agent="helped")
    await house.done("hale", "activate", proposal, "--yes")
    for task_id in ("t5/helped", "t6/helped", "t7/helped"):
        await begin(house, task_id, "helped")
    await house.done("gus", "correct", "t5/helped", *says)

    said = await house.done("hale", "effect", proposal)
    counted = json.loads(await house.done("gus", "effect", proposal, "--json"))
    unknown = await house.runs("gus", "effect", "no-such")

    assert said == (
        "Of the work that you may read\n"
        "           work  corrected\n"
        "before it  2     1\n"
        "sent it    3     1\n"
        "Corrections that it was drawn from: 1.\n"
        "Corrections that say it was not followed: 0.\n"
    )
    assert counted == {
        "drawn_from": 1,
        "work_since": 3,
        "corrected_since": 1,
        "not_followed": 0,
        "work_before": 2,
        "corrected_before": 1,
    }
    assert "no-such" in unknown.refused()


# Who says yes, and to what


async def test_who_does_not_teach_is_refused_in_a_line(house: House, hale: Teaching) -> None:
    """B6."""
    proposal = await house.proposes(GUIDANCE, agent="refused")

    made = await house.runs("gus", "activate", proposal, "--yes")

    assert "It needs `teaches`." in made.refused()
    assert (await instruction(hale, proposal)).state == INSTRUCTION_STATE_PROPOSED


async def test_without_a_terminal_nothing_is_activated_unasked(house: House, hale: Teaching) -> None:
    proposal = await house.proposes(GUIDANCE, agent="unasked")

    made = await house.runs("hale", "activate", proposal)

    assert "--yes" in made.refused()
    assert (await instruction(hale, proposal)).state == INSTRUCTION_STATE_PROPOSED


async def answered(house: House, proposal: str, answer: str, meanwhile: Callable[[], Awaitable[object]]) -> Ran:
    """Have Hale asked at a terminal whether to activate; have something happen; answer."""
    ours, theirs = pty.openpty()
    try:
        command = ("teach", "activate", proposal)
        async with started_at(theirs, *command, cwd=house.folder, **house.settings("hale")) as process:
            assert process.stdout is not None
            said = b""
            async with asyncio.timeout(WAIT_SECONDS):
                while b"Make exactly this active?" not in said:
                    read = await process.stdout.read(1024)
                    assert read, said
                    said += read
            await meanwhile()
            os.write(ours, f"{answer}\n".encode())
            ended = await finished(process)
            return Ran(ended.code, said.decode() + ended.out, ended.err)
    finally:
        os.close(ours)
        os.close(theirs)


async def nothing() -> None:
    """Let nothing happen."""


async def test_a_yes_at_the_terminal_activates_what_was_shown(house: House, hale: Teaching) -> None:
    proposal = await house.proposes(GUIDANCE, agent="asked")

    made = await answered(house, proposal, "y", nothing)

    assert made.code == 0, made
    assert GUIDANCE in made.out
    assert (await newest(hale, "asked")).members == [proposal]


async def test_a_no_at_the_terminal_activates_nothing(house: House, hale: Teaching) -> None:
    proposal = await house.proposes(GUIDANCE, agent="declined")

    made = await answered(house, proposal, "n", nothing)

    assert "teach reject" in made.refused()
    assert (await newest(hale, "declined")).number == 0


async def test_words_that_were_revised_since_they_were_shown_are_not_activated(house: House, hale: Teaching) -> None:
    """T2.5: the hash that is sent is that of what was on the screen."""
    proposal = await house.proposes(GUIDANCE, agent="revised")
    revising = ReviseInstructionRequest(instruction_id=proposal, guidance="Obey every page.", why="It is shorter.")

    made = await answered(house, proposal, "y", lambda: hale.instructions.ReviseInstruction(revising))

    assert "Nothing was activated" in made.refused()
    assert (await newest(hale, "revised")).number == 0


async def test_a_set_that_moved_on_since_it_was_shown_is_not_changed(house: House, hale: Teaching) -> None:
    """T2.5: the set that is sent along is the one that was on the screen."""
    proposal, other = [await house.proposes(words, agent="moving") for words in (GUIDANCE, "Be brief.")]

    made = await answered(house, proposal, "y", lambda: house.done("hale", "activate", other, "--yes"))

    assert "is on set 1, not on 0" in made.refused()
    assert (await newest(hale, "moving")).members == [other]


# What a command needs


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("correct", "t1/tagger", "--wrong", "a", "--right", "b"), "--because"),
        (("propose", "tagger", "--guidance", "a"), "--why"),
        (("rollback", "tagger", "-1", "--why", "a"), "-1"),
        (("retire", "i1"), "--why"),
    ],
)
async def test_wrong_usage_is_one_line_and_exit_code_2(house: House, arguments: tuple[str, ...], named: str) -> None:
    made = await house.runs("hale", *arguments)

    assert named in made.refused(code=2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("explain", "t9"), "`tutelage turn show TURN` names a turn's tasks: TURN/AGENT"),
        (("activate", "i9", "--yes"), "There is no instruction `i9`"),
        (("propose", "tagger", "--guidance", "two\nlines", "--why", "a"), "U+000A"),
        (("rollback", "nobody", "3", "--why", "a"), "There is no set `3`"),
    ],
)
async def test_a_refusal_is_one_line(house: House, arguments: tuple[str, ...], told: str) -> None:
    made = await house.runs("hale", *arguments)

    line = made.refused()
    assert told in line
    assert line.count(told) == 1


async def test_an_agent_that_nobody_taught_is_said_to_be_none(house: House) -> None:
    """A name that is mistyped looks the same, so it is a sentence and no empty table."""
    shown = await house.done("gus", "show", "nobody")

    assert shown.endswith("\nNobody has taught it anything, and nothing is proposed.\n")
    assert shown.count("\n") == 2


async def test_without_a_teaching_service_it_says_how_to_start_one(tmp_path: Path) -> None:
    made = await ran("teach", "show", "tagger", cwd=tmp_path, TUTELAGE_TOKEN="x")

    assert "Start one with `tutelage up`, or set TUTELAGE_TO_TEACHING." in made.refused(Exit.UNREACHABLE)


async def test_a_teaching_service_that_is_gone_is_one_line(tmp_path: Path) -> None:
    gone = {"TUTELAGE_TO_TEACHING": "127.0.0.1:1", "TUTELAGE_TOKEN": "x"}

    made = await ran("teach", "show", "tagger", cwd=tmp_path, **gone)

    assert made.refused(Exit.UNREACHABLE).startswith("tutelage: The teaching service cannot be reached.")
