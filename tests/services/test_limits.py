"""What a turn may take: over every process that takes it up, and every agent in it (C5, C13, R6.7, R7, settled 43)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import stamina
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.agents_pb2 import Limits
from tutelage.tools import READS, tool

from runtime_service.engine.models import MOST_TRIES
from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, NOTHING_ASKED, Service, calls

WRITE = ("write_note", {"name": "spring", "text": "tulips"})


def of_kid(*said: str) -> list[tuple[str, dict[str, Any]]]:
    return [("kid", {"input": each}) for each in said]


@pytest.fixture
def no_waits() -> Iterator[None]:
    """As many tries as ever, one at once after the other."""
    with stamina.set_testing(True, attempts=MOST_TRIES, cap=True):
        yield


@pytest.mark.usefixtures("host")
async def test_a_limit_holds_over_every_writer(service: Service, book: Book) -> None:
    """Two restarts do not give a turn more than its limit; the cause names limit, figure and agent."""
    again = calls(WRITE, when="step < 5")
    await service.agent("gardener", again, tools=["write_note"], limits=Limits(model_requests=2))
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)

    for _ in range(2):
        asked = await service.question(turn_id)
        await service.restart()
        await service.yes(asked)
    turn = await service.ended(turn_id)

    assert (turn.state, turn.writer) == (turns_pb2.TURN_STATE_FAILED, 3)
    assert turn.cause.startswith(
        "The turn has reached a limit of its agent gardener: at most 2 model requests, and it came to 2."
    )
    assert len(service.paid("gardener")) == turn.usage.model_requests == 2
    assert len(book.runs("write_note")) == 2


async def test_agents_side_by_side_make_no_request_more_than_the_limit(service: Service) -> None:
    """A request under way counts as made: of five at once three are paid for (settled 43)."""
    await service.agent("kid", {"delay_ms": 300, "say": "Done."}, limits=Limits(model_requests=1))
    await service.agent("head", calls(*of_kid(*"abcde")), agents=["kid"], limits=Limits(model_requests=4))

    turn = await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "agent head: at most 4 model requests, and it came to 4." in turn.cause
    assert len(service.paid("kid")) == 3
    assert turn.usage.model_requests == 4


@pytest.mark.usefixtures("no_waits")
async def test_a_request_that_got_no_reply_takes_nothing(service: Service) -> None:
    """The other, which waited for what became of it, is made in its stead."""
    first = "messages[0].text == 'a'"
    await service.agent("kid", {"when": first, "delay_ms": 200, "fail": {"status": 503}}, {"say": "Done."})
    await service.agent("head", calls(*of_kid("a", "b")), agents=["kid"], limits=Limits(model_requests=2))

    turn = await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "at most 2 model requests, and it came to 2." in turn.cause
    assert [one["messages"][0]["text"] for one in service.paid("kid")] == ["b"]


async def test_tokens_of_the_tree_are_summed(service: Service) -> None:
    """Known once a reply has come: no request is begun once they are used up (settled 43)."""
    await service.agent("kid", {"say": "x" * 400})
    await service.agent("head", calls(*of_kid("a")), {"say": "Done."}, agents=["kid"], limits=Limits(output_tokens=100))

    turn = await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert f"agent head: at most 100 output tokens, and it came to {turn.usage.output_tokens}." in turn.cause
    assert 100 < turn.usage.output_tokens < 120
    assert (len(service.paid("head")), len(service.paid("kid"))) == (1, 1)


async def test_what_may_have_run_is_listed_where_a_limit_ends_the_turn(service: Service, book: Book) -> None:
    """A call under way is not waited for, and a person has to say what became of it (R6.5)."""

    @tool(effects=READS)
    async def until_it_began() -> str:
        """Wait for the other call."""
        await book.slow_began.wait()
        return "It began."

    await service.agent("kid", {"say": "Never."})
    too_deep = calls(*of_kid("a"), when="step == 1")
    await service.agent("nephew", calls(("until_it_began", {})), too_deep, agents=["kid"], tools=["until_it_began"])
    asks = calls(("slow_write", {"name": "spring"}), ("nephew", {"input": "Go."}))
    limits = Limits(depth=1)
    await service.agent("head", asks, agents=["nephew"], tools=["slow_write"], limits=limits, approve=NOTHING_ASKED)
    async with service.host("slow", book.slow_write(), until_it_began):
        turn = await service.ended(await service.asked_of("head"))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "agent head: at most 1 agents below each other, and it came to 2." in turn.cause
    assert [one.tool for one in turn.unfinished] == ["slow_write"]
    assert service.paid("kid") == []


# Backing off


@pytest.mark.usefixtures("no_waits")
async def test_a_turn_that_got_further_backs_off_from_the_start(service: Service, book: Book) -> None:
    """Twice in vain for want of a host; behind the call's result its provider is away: another thing (R6.7)."""
    await service.agent("gardener", calls(WRITE), {"fail": {"status": 503}}, tools=["write_note"])
    async with service.host("notebook", *book.tools()):
        turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
        asked = await service.question(turn_id)
    await service.yes(asked)

    tried, cursor = [], ""
    for _ in range(2):
        cursor = await stopped(service, turn_id, cursor)
        tried.append(tries(service, turn_id))
        await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id))
    cursor = await stopped(service, turn_id, cursor)
    async with service.host("notebook", *book.tools()):
        await stopped(service, turn_id, cursor)

    assert tried == [1, 2]
    assert tries(service, turn_id) == 1
    assert "503" in (await service.get(turn_id)).cause
    assert len(book.runs("write_note")) == 1


async def stopped(service: Service, turn_id: str, cursor: str) -> str:
    """Wait until a turn is interrupted once more; return the cursor behind that."""
    return (await service.events(turn_id, lambda event: event.HasField("interrupted"), cursor))[-1].cursor


def tries(service: Service, turn_id: str) -> int:
    """How often a turn was tried in vain: what it backs off by."""
    [(number,)] = service.rows(f"select tries from turns where id = '{turn_id}'")
    return int(number)
