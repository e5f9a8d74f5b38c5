"""A turn's row: how long one that was interrupted is left alone (R6.7)."""

from datetime import timedelta

import pytest

from runtime_service.domain.turns import LONGEST_BACKOFF, TurnState
from tests.domain.made import NOON, a_turn

TURN = a_turn(state=TurnState.RUNNING)


def test_a_turn_that_is_tried_in_vain_is_left_alone_twice_as_long_each_time_up_to_an_hour() -> None:
    """2 s, 4 s, 8 s, …; also after a thousand times (R6.7)."""
    turn, waits = TURN, []
    for _ in range(1_000):
        stopped = turn.interrupted("It is away.", NOON, awaits_tools=(), again=True)
        assert stopped.retry_time is not None
        waits.append(stopped.retry_time - NOON)
        turn = stopped.taken("p", NOON)

    assert waits[:3] == [timedelta(seconds=2), timedelta(seconds=4), timedelta(seconds=8)]
    assert waits == sorted(waits)
    assert waits[11:] == [LONGEST_BACKOFF] * (1_000 - 11)
    assert timedelta(hours=1) == LONGEST_BACKOFF


@pytest.mark.parametrize("after", [0.0, 1.0, 90.0, 5_400.0])
def test_not_sooner_than_the_part_that_is_away_asked_for(after: float) -> None:
    """Its own word is the earliest, also where it is later than an hour (C13)."""
    stopped = TURN.interrupted("It is away.", NOON, awaits_tools=(), again=True, after=after)

    assert stopped.retry_time == NOON + timedelta(seconds=max(2.0, after))


def test_a_turn_that_waits_for_a_person_is_not_tried_by_itself() -> None:
    assert TURN.interrupted("It may have run.", NOON, awaits_tools=(), again=False).retry_time is None
