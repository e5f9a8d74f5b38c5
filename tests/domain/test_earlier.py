"""What a call is shown of what was said before it (R9)."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain import earlier
from runtime_service.domain.earlier import Earlier, Said

said = st.lists(st.builds(Said, st.text(max_size=5), st.text(max_size=5)), max_size=20)


@given(said, said, st.integers(1, 8), st.integers(1, 40))
def test_the_newest_are_shown_in_their_order_and_what_is_left_out_is_said(
    before: list[Said], later: list[Said], most: int, characters: int
) -> None:
    """As many as may be, and none once those that are newer fill the room there is."""
    with patch.object(earlier, "MOST_SHOWN", most), patch.object(earlier, "MOST_CHARACTERS", characters):
        shown = Earlier(tuple(before)).then(later)

    everything = [*before, *later]
    count = len(shown.said)
    sizes = [len(one.input) + len(one.output) for one in shown.said]
    assert list(shown.said) == everything[len(everything) - count :]
    assert count <= most
    assert sum(sizes[1:]) < characters
    assert shown.cut == (count < len(everything))
    assert not shown.cut or count == most or sum(sizes) >= characters


@given(said, said, said)
def test_what_is_shown_does_not_depend_on_how_much_was_known_before(
    one: list[Said], two: list[Said], three: list[Said]
) -> None:
    """A later writer that finds more of it on disk shows the same."""
    with patch.object(earlier, "MOST_SHOWN", 7), patch.object(earlier, "MOST_CHARACTERS", 30):
        assert Earlier().then(one).then([*two, *three]) == Earlier().then(one).then(two).then(three)
