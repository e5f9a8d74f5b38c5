"""`tutelage turn` and `tutelage records`: work given, followed, waited for and ended, by commands alone."""

from __future__ import annotations

import re
import signal

import pytest
from tutelage.cli.exits import Exit

from tests.client.commands import Ran, finished, heard
from tests.commands.desk import Desk, found, lines_of
from tests.services.service import Service, calls

WRITE = ("write_note", {"name": "todo.md", "text": "one"})
READ = ("read_note", {"name": "todo.md"})


async def writer(service: Service, name: str) -> None:
    """Register an agent that wants to write a note, so that it asks."""
    await service.agent(name, calls(WRITE), {"say": "I am done."}, tools=["write_note"])


async def talker(service: Service, name: str, says: str = "Hello.") -> None:
    """Register an agent that answers at once: what it was asked, and this."""
    await service.agent(name, {"say": says})


# Giving work


async def test_a_wait_prints_the_output_alone(desk: Desk, service: Service) -> None:
    """A script reads what the agent handed back; which turn it was stands on standard error."""
    await talker(service, "waited", "One\nand two.")

    made = await desk.runs("turn", "start", "waited", "Say", "something.", "--wait")

    turn = await service.get(found(r"^turn (\w+)$", made.err))
    assert (made.code, made.out) == (0, "One\nand two.\n")
    assert turn.work.input == "Say something."


async def test_what_hides_is_shown_to_people_and_kept_for_programs(desk: Desk, service: Service) -> None:
    """D8."""
    await talker(service, "hiding", "one\u202etwo")

    shown = await desk.done("turn", "start", "hiding", "Go.", "--wait")
    kept = await desk.told("turn", "start", "hiding", "Go.", "--wait")

    assert shown == "one\\u{202e}two\n"
    assert kept["output"] == "one\u202etwo"
    assert kept["state"] == "TURN_STATE_DONE"


async def test_the_same_request_is_the_same_turn(desk: Desk, service: Service) -> None:
    """Also without a conversation of one's own: a command that is repeated gives no work twice (A18)."""
    await talker(service, "once")
    request = ("turn", "start", "once", "Go on.", "--request-id", "letter-17", "--wait")

    first, again = [await desk.told(*request) for _ in range(2)]
    made_up = await desk.done("turn", "start", "once", "Go on.")

    assert first["id"] == again["id"]
    assert first["conversation_id"] == "letter-17"
    assert found(r"^  request     (\w+)$", made_up) == found(r"^  stands in   (\w+), turn 1 of it$", made_up)


async def test_work_comes_in_words_from_a_file_and_from_standard_input(desk: Desk, service: Service) -> None:
    await talker(service, "reader")
    (desk.folder / "letter.txt").write_text("From a file.\n")

    told = [
        await desk.done("turn", "start", "reader", "-", "--scope", "team:1", "--json", stdin="From\ninput.\n"),
        await desk.done("turn", "start", "reader", "--file", "letter.txt", "--json"),
    ]

    asked = [found(r'"input": (".*")', each) for each in told]
    assert asked == ['"From\\ninput."', '"From a file."']
    assert found(r'"scope": (".*")', told[0]) == '"team:1"'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reader",), "Say what is asked, once"),
        (("reader", "Go.", "--file", "x"), "Say what is asked, once"),
        (("reader", "Go.", "--timeout", "1"), "--timeout goes with"),
        (("reader", "Go.", "--wait", "--watch"), "not both"),
        (("reader", "Go.", "--approve", "perhaps"), "perhaps is no setting"),
        (("reader", "Go.", "--if-busy", "panic"), "panic"),
    ],
)
async def test_work_that_is_given_wrongly_is_not_given(desk: Desk, arguments: tuple[str, ...], said: str) -> None:
    made = await desk.runs("turn", "start", *arguments)

    assert said in made.refused(Exit.USAGE)


async def test_each_wrong_field_is_named(desk: Desk, service: Service) -> None:
    await talker(service, "strict")

    made = await desk.runs("turn", "start", "strict", "Go.", "--for", "two words", "--scope", "s" * 300)

    line = made.refused()
    assert "tutelage: work.scope: " in line
    assert "; work.work_for: " in line


async def test_an_agent_that_is_not_there_is_one_line(desk: Desk) -> None:
    assert "nobody" in (await desk.runs("turn", "start", "nobody", "Go.")).refused()


# What it came to


async def test_a_turn_that_asks_ends_a_wait_and_goes_on_after_the_answer(desk: Desk, service: Service) -> None:
    """A script learns by the exit code that a person is needed, and by which approval (A8)."""
    await writer(service, "asking")

    waits = await desk.runs("turn", "start", "asking", "Write.", "--wait")
    turn_id = found(r"^turn (\w+)$", waits.err)
    approval = found(r"waits for a person: (\w+)\.", waits.err)
    listed = await desk.done("turn", "list", "--agent", "asking", "--state", "waiting")
    answered = await desk.told("approvals", "approve", approval, "--yes")
    ended = await desk.done("turn", "wait", turn_id)

    assert (waits.code, waits.out) == (Exit.WAITING, "")
    assert f"\n{turn_id}  WAITING" in listed
    assert answered["state"] == "APPROVAL_STATE_APPROVED"
    assert ended == "I am done.\n"


async def test_a_turn_that_failed_and_one_that_was_ended_have_codes_of_their_own(desk: Desk, service: Service) -> None:
    """A19: what an abandoned turn asked is withdrawn."""
    await service.agent("failing", {"fail": {"status": 400}})
    await writer(service, "ended")
    turn_id = await desk.starts("ended")
    [asked] = await service.questions(turn_id)

    failed = await desk.runs("turn", "start", "failing", "Go.", "--wait")
    ended = await desk.done("turn", "abandon", turn_id, "--why", "Asked twice.")
    abandoned = await desk.runs("turn", "wait", turn_id)

    assert failed.code == Exit.FAILED
    assert "`tutelage turn resume " in failed.err
    assert "  state       ABANDONED\n" in ended
    assert "  cause       Asked twice.\n" in ended
    assert "Asked twice." in abandoned.refused(Exit.ABANDONED)
    assert "TURN_ENDED" not in (await desk.runs("turn", "abandon", turn_id, "--why", "Again.")).refused()
    assert asked.id not in await desk.done("approvals", "list")


async def test_a_wait_has_its_time_and_says_how_to_go_on(desk: Desk, service: Service) -> None:
    """At a terminal it says meanwhile what the turn does, on standard error."""
    await service.agent("slow", {"say": "At last.", "delay_ms": 4_000})
    turn_id = await desk.starts("slow")

    made = await desk.runs("turn", "wait", turn_id, "--timeout", "0.2")

    assert made.refused(Exit.TIMED_OUT) == f"tutelage: 0.2 s are over. To go on: `tutelage turn wait {turn_id}`"
    ended = await desk.runs("turn", "wait", turn_id, TTY_COMPATIBLE="1", TERM="xterm")
    assert (ended.code, ended.out) == (0, "At last.\n")
    assert "task_started" in ended.err


# Following it


async def test_a_watch_shows_what_is_asked_and_how_to_answer_and_ends_with_the_turn(
    desk: Desk, service: Service
) -> None:
    """Answered by the command that it printed (A8, A7)."""
    await writer(service, "watched")

    async with desk.stays("turn", "start", "watched", "Write.", "--watch") as watching:
        seen = await heard(watching, "--reason TEXT")
        deny = found(r"^  no          tutelage (.*) --reason TEXT$", seen)
        await desk.done(*deny.split(), "--reason", "Not today.")
        ended = await finished(watching)

    assert 'text: "one"' in seen
    assert "DONE  I am done." in ended.out
    assert (ended.code, ended.err) == (0, "")
    assert "Not today." in ended.out


async def test_a_watch_for_programs_goes_on_from_any_event(desk: Desk, service: Service) -> None:
    """One object a line; `--after` shows what is new and nothing else (A13)."""
    await talker(service, "lines")

    told = await desk.done("turn", "start", "lines", "Go.", "--watch", "--json")
    begun, *events = lines_of(told)
    again = await desk.done("turn", "watch", begun["turn"]["id"], "--json")
    rest = await desk.done("turn", "watch", begun["turn"]["id"], "--json", "--after", events[1]["cursor"])

    kept = [event for event in events if event["cursor"]]  # text is shown as it comes, and not kept
    assert kept[-1]["ended"]["state"] == "TURN_STATE_DONE"
    assert lines_of(again) == kept
    assert lines_of(rest) == kept[kept.index(events[1]) + 1 :]


async def test_ctrl_c_ends_a_watch_and_not_the_turn(desk: Desk, service: Service) -> None:
    """The line says how to go on, from where it stood."""
    await writer(service, "stopped")
    turn_id = await desk.starts("stopped")

    async with desk.stays("turn", "watch", turn_id) as watching:
        await heard(watching, "--reason TEXT")
        watching.send_signal(signal.SIGINT)
        stopped = await finished(watching)
    command = found(r"`tutelage (.*)`", stopped.refused(Exit.STOPPED))
    await desk.done("turn", "abandon", turn_id, "--why", "Enough.")
    rest = await desk.runs(*command.split())

    assert f"turn watch {turn_id} --after " in command
    assert "turn_given" not in rest.out
    assert "ABANDONED  Enough." in rest.out
    assert rest.code == Exit.ABANDONED


async def test_a_watch_of_a_turn_that_is_not_there_ends_at_once(desk: Desk) -> None:
    assert "no turn `t9`" in (await desk.runs("turn", "watch", "t9")).refused()


# Looking at it


async def test_the_journal_is_printed_line_by_line(desk: Desk, service: Service) -> None:
    await service.agent("noted", calls(READ), {"say": "Read."}, tools=["read_note"])
    turn_id = (await desk.told("turn", "start", "noted", "Go.", "--wait"))["id"]

    said = await desk.done("records", turn_id)
    told = lines_of(await desk.done("records", turn_id, "--json"))

    records = await service.records(turn_id)
    assert [each["chain"] for each in told] == [record.chain for record in records]
    assert [int(line.split()[0]) for line in said.splitlines()] == [record.line for record in records]
    assert re.match(r"   1  \S+ \S+Z  noted +turn_given: gus asks noted: Go\.\n", said)
    assert "read_note#1" in said


async def test_who_has_read_enough_of_it_ends_it_quietly(desk: Desk, service: Service) -> None:
    await talker(service, "piped")
    turn_id = (await desk.told("turn", "start", "piped", "Go.", "--wait"))["id"]

    made = await desk.bash(f"tutelage records {turn_id} | true; exit ${{PIPESTATUS[0]}}")

    assert made == Ran(0, "", "")


async def test_turns_are_listed_by_what_they_are(desk: Desk, service: Service) -> None:
    """Newest first, ids whole, and a word where there are more."""
    await talker(service, "listed")
    ids = [(await desk.told("turn", "start", "listed", str(number), "--wait"))["id"] for number in range(3)]

    told = await desk.told("turn", "list", "--agent", "listed", "--state", "done")
    some = await desk.runs("turn", "list", "--agent", "listed", "--most", "2")
    none = await desk.done("turn", "list", "--agent", "listed", "--state", "waiting")

    assert [turn["id"] for turn in told["turns"]] == ids[::-1]
    assert [line.split()[0] for line in some.out.splitlines()[2:]] == ids[:0:-1]
    assert some.err == "There are more: say --most.\n"
    assert none == "There are no such turns.\n"
