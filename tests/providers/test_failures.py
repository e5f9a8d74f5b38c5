"""Providers that fail, in every way: what is asked again, how often, and what becomes of the turn (C13, R6.7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
import stamina
from tutelage.runtime.v1 import turns_pb2

from runtime_service.engine.models import MOST_TRIES, Asked, ModelRefused, ModelRequest, Models, ModelUnavailable
from runtime_service.engine.providers import LibraryModels
from tests.providers.conftest import gardener
from tests.providers.wire import Answer, Bytes, Call, HangsUp, Says, Silence, Status, Wire
from tests.services.service import Service

DONE = Says(("Done.",))
CALL = Call("call_a", "read_note", ('{"name": ', '"tulips"}'))

PASSING: dict[str, Answer] = {
    "408": Status(408),
    "429": Status(429),
    "500": Status(500),
    "502": Status(502),
    "503": Status(503),
    "529": Status(529),
    "hangs up": HangsUp(),
    "cut in the head": Says(("Do", "ne."), cut_after=1),
    "cut in the text": Says(("Do", "ne."), cut_after=3),
    "cut in a call": Says((), (CALL,), cut_after=3),
    "ends in the text": Says(("Do", "ne."), cut_after=3, quietly=True),
    "ends in a call": Says((), (CALL,), cut_after=3, quietly=True),
    "no JSON": Bytes(b'{"id": '),
    "a page": Bytes(b"<html>Sorry.</html>", "text/html"),
    "another format": Bytes(b'{"result": "Done."}'),
    "events of no JSON": Bytes(b"data: {\n\n", "text/event-stream"),
    "events of another format": Bytes(b'data: {"choices": 3, "type": 4}\n\n', "text/event-stream"),
    "events of nothing": Bytes(b"", "text/event-stream"),
}


async def interrupted(service: Service, turn_id: str) -> turns_pb2.Turn:
    return (await service.events(turn_id, lambda event: event.HasField("interrupted")))[-1].interrupted


@pytest.fixture
def no_waits() -> Iterator[None]:
    """As many tries as ever, one at once after the other."""
    with stamina.set_testing(True, attempts=MOST_TRIES, cap=True):
        yield


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING)
async def test_what_passes_is_asked_again(service: Service, wire: Wire, model: str, failure: Answer) -> None:
    """What came of a reply that broke off is none of it. A turn is interrupted only where a watcher was told some."""
    wire.answers += [failure, DONE]
    await gardener(service, model)

    turn = await service.ended(await service.asked_of("gardener"))

    assert (turn.state, turn.output) == (turns_pb2.TURN_STATE_DONE, "Done.")
    assert turn.usage.model_requests == 1
    assert turn.writer == 1 or (turn.writer == 2 and isinstance(failure, Says) and failure.text)
    assert len(wire.arrived) == 2


@pytest.mark.usefixtures("no_waits")
async def test_an_answer_that_does_not_come(idle_service: Service, wire: Wire, model: str) -> None:
    """MODEL_SECONDS bounds a reply, and the connection is given up."""
    await idle_service.start(model_seconds=0.3)
    wire.answers += [Silence(), DONE]
    await gardener(idle_service, model)

    turn = await idle_service.ended(await idle_service.asked_of("gardener"))

    assert turn.output == "Done."
    assert len(wire.arrived) == 2
    async with asyncio.timeout(5):
        await wire.left.wait()


@pytest.mark.usefixtures("no_waits")
async def test_a_stream_that_does_not_end(idle_service: Service, wire: Wire, model: str) -> None:
    """The bound is on the whole reply, not on each piece."""
    await idle_service.start(model_seconds=0.3)
    wire.answers += [Says(("Do", "ne."), held=asyncio.Event()), DONE]
    await gardener(idle_service, model)

    turn = await idle_service.ended(await idle_service.asked_of("gardener"))

    assert turn.output == "Done."
    assert len(wire.arrived) == 2


@pytest.mark.parametrize("failure", [Status(503, "We sleep."), Says((), (CALL,), cut_after=3)], ids=["503", "cut"])
@pytest.mark.usefixtures("no_waits")
async def test_what_lasts_interrupts_the_turn_and_it_goes_on_by_itself(
    service: Service, wire: Wire, model: str, failure: Answer
) -> None:
    """Three tries, then INTERRUPTED with its cause; then taken up again, by its next writer (R6.7)."""
    wire.answers += [failure, failure, failure]
    await gardener(service, model)
    turn_id = await service.asked_of("gardener")

    stopped = await interrupted(service, turn_id)
    tries = len(wire.arrived)
    wire.answers.append(DONE)
    turn = await service.ended(turn_id)

    assert tries == 3
    assert stopped.state == turns_pb2.TURN_STATE_INTERRUPTED
    assert stopped.cause.startswith(f"The model {model} does not answer: ")
    assert ("503. We sleep." if isinstance(failure, Status) else "broke") in stopped.cause
    assert (turn.output, turn.writer) == ("Done.", 2)
    assert len(wire.arrived) == 4


@pytest.mark.usefixtures("no_waits")
async def test_a_provider_that_is_not_there(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection: said as such."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    await gardener(service, "openai-chat:gpt-4o")

    stopped = await interrupted(service, await service.asked_of("gardener"))

    assert stopped.cause == "The model openai-chat:gpt-4o does not answer: it cannot be reached."


async def test_how_long_the_provider_says_is_waited(service: Service, wire: Wire, model: str) -> None:
    """429 with Retry-After: not sooner."""
    wire.answers += [Status(429, headers={"retry-after": "2"}), DONE]
    await gardener(service, model)

    began = time.monotonic()
    turn = await service.ended(await service.asked_of("gardener"))

    assert time.monotonic() - began >= 2
    assert (turn.output, turn.writer) == ("Done.", 1)
    assert len(wire.arrived) == 2


async def test_longer_than_a_turn_is_held_it_is_let_go_of(service: Service, wire: Wire, model: str) -> None:
    """Asked once; the provider's own word is the earliest next try, however soon the backing off would be (R6.7)."""
    wire.answers += [Status(429, "Come back in an hour and a half.", headers={"retry-after": "5400"})]
    await gardener(service, model)

    turn_id = await service.asked_of("gardener")
    stopped = await interrupted(service, turn_id)

    [(retry, stopped_at)] = service.rows(f"select retry_time, update_time from turns where id = '{turn_id}'")
    waits = datetime.fromisoformat(str(retry)) - datetime.fromisoformat(str(stopped_at))
    assert len(wire.arrived) == 1
    assert "429. Come back in an hour and a half." in stopped.cause
    assert 5399 < waits.total_seconds() < 5401


async def test_a_script_is_asked_again_as_a_provider_is(service: Service) -> None:
    """429, 5xx: the same for scripted models (settled 34)."""
    await service.agent("gardener", {"fail": {"status": 429, "retry_after": 1, "times": 2}, "say": "At last."})

    began = time.monotonic()
    turn = await service.ended(await service.asked_of("gardener"))

    asked = (service.scripts / "gardener.requests.jsonl").read_text().splitlines()
    assert (turn.output, turn.writer, len(asked)) == ("At last.", 1, 3)
    assert time.monotonic() - began >= 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_does_not_pass_ends_the_turn(service: Service, wire: Wire, model: str, status: int) -> None:
    """Asked once. The provider's words are the cause, and no key is among them."""
    key = "key-of-anthropic" if model.startswith("anthropic") else "key-of-openai"
    wire.answers += [Status(status, f"That is wrong with\n{key}.")]
    await gardener(service, model)

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert turn.cause == f"The model {model} gave no reply: it answered {status}. That is wrong with …."
    assert len(wire.arrived) == 1


@pytest.mark.usefixtures("no_waits")
async def test_an_account_with_nothing_left_interrupts_the_turn(service: Service, wire: Wire) -> None:
    """Somebody may pay: no turn ends for it."""
    wire.answers += [Status(429, "You have no credits.", code="insufficient_quota")] * 3
    await gardener(service, "openai-chat:gpt-4o")

    stopped = await interrupted(service, await service.asked_of("gardener"))

    assert stopped.cause.endswith("its account has nothing left. You have no credits.")


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Says((), reason="content_filter"), "its provider held the reply back."),
        (Says((), reason="length"), "it wrote as much as it may before it said anything."),
    ],
)
async def test_a_reply_that_was_held_back(service: Service, wire: Wire, answer: Answer, cause: str) -> None:
    wire.answers += [answer]
    await gardener(service, "openai-chat:gpt-4o")

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert turn.cause == f"The model openai-chat:gpt-4o gave no reply: {cause}"


async def test_a_reply_larger_than_a_record_holds(service: Service, wire: Wire, model: str) -> None:
    """Refused as it comes: neither memory nor the journal holds it (R12)."""
    wire.answers += [Says(("x" * 100_000,) * 30)]
    await gardener(service, model)

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "2097152" in turn.cause
    assert len(wire.arrived) == 1


async def test_a_stopped_turn_asks_no_more(service: Service, wire: Wire, model: str) -> None:
    """AbandonTurn closes the connection to the provider (A19)."""
    wire.answers += [Silence()]
    await gardener(service, model)
    turn_id = await service.asked_of("gardener")
    async with asyncio.timeout(10):
        await wire.asked.wait()

    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=turn_id))

    async with asyncio.timeout(10):
        await wire.left.wait()
    assert len(wire.arrived) == 1


# What is told of a reply while it comes: below the API.


async def test_text_is_told_as_it_comes(wire: Wire, model: str) -> None:
    """The reply ends only once its text was told (C6)."""
    held, told = asyncio.Event(), list[str]()

    def on_text(text: str) -> None:
        told.append(text)
        if text == "two.":
            held.set()

    wire.answers += [Says(("One ", "two."), held=held)]
    async with LibraryModels(seconds=10) as library:
        reply = await Models({}, library).ask(ModelRequest(model, (), (Asked("Go."),)), on_text)

    assert told == ["One ", "two."]
    assert reply.text == "One two."


async def test_a_reply_of_which_something_was_told_is_not_asked_for_again(wire: Wire, model: str) -> None:
    """Else its beginning would be told twice. Whoever listens is told that it broke off."""
    told: list[str] = []
    wire.answers += [Says(("One ", "two."), cut_after=4), Says(("One ", "two."))]

    async with LibraryModels(seconds=10) as library:
        with pytest.raises(ModelUnavailable):
            await Models({}, library).ask(ModelRequest(model, (), (Asked("Go."),)), told.append)

    assert told
    assert len(wire.arrived) == 1


async def test_a_name_that_is_not_good_any_more_is_refused(wire: Wire) -> None:
    async with LibraryModels(seconds=10) as library:
        with pytest.raises(ModelRefused, match="There is no provider `nobody`"):
            await Models({}, library).ask(ModelRequest("nobody:x", (), (Asked("Go."),)))
