"""Long conversations: what the turn behind so many others costs. At the last size it is shown some 200,000 tokens."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from tutelage.runtime.v1 import turns_pb2

from benchmarks.figures import Figures
from benchmarks.stand import Stand, standing

TURNS = (10, 100, 500)
# What each is asked: 400 tokens.
INPUT = "What grows in the shade of a wall, and when? " * 36
TRIES = 9


async def measure() -> Figures:
    """Measure along one conversation."""
    figures = Figures("A conversation of so many turns", TURNS)
    async with standing() as stand:
        await stand.agent("gardener", [{"say": "Ferns, from May on."}])
        conversation = await stand.conversation("gardener")
        made = 0
        for turns in TURNS:
            took: list[float] = []
            while made < turns:
                took.append(await _seconds(stand, conversation))
                made += 1
                stand.forget_requests()
            figures.add("a turn from its start to its end, ms", median(took[-TRIES:]) * 1e3)
            figures.add("to list what it was shown, ms", await _ms_to_list(stand, conversation))
    return figures


async def _seconds(stand: Stand, conversation: str) -> float:
    began = perf_counter()
    await stand.until(await stand.turn(conversation, INPUT), "ended")
    return perf_counter() - began


async def _ms_to_list(stand: Stand, conversation: str) -> float:
    newest = turns_pb2.ListTurnsRequest(conversation_id=conversation, page_size=1)
    [last] = (await stand.client.turns.ListTurns(newest)).turns
    began = perf_counter()
    await stand.client.turns.ListTurns(turns_pb2.ListTurnsRequest(before_turn_id=last.id))
    return (perf_counter() - began) * 1e3
