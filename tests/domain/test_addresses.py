"""Paths, addresses, and the names that rules use: runtime.md Words, R2.6; features A6, A17."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.addresses import Address, below, depth_of, names_call, path_of, root_address

names = st.text(alphabet="ab._-1", min_size=1, max_size=3)
steps = st.lists(st.tuples(names, st.integers(1, 999)), max_size=5)


def _address(agent: str, calls: list[tuple[str, int]]) -> Address:
    address = root_address(agent)
    for name, invocation in calls:
        address = below(address, name, invocation)
    return address


def test_an_address_is_the_path_with_each_calls_number() -> None:
    """A17."""
    address = below(below(root_address("support"), "answer", 2), "refund", 1)
    assert address == "support/answer#2/refund#1"
    assert path_of(address) == "support/answer/refund"
    assert depth_of(address) == 2


@given(names, steps)
def test_an_address_leads_back_to_its_path_and_depth(agent: str, calls: list[tuple[str, int]]) -> None:
    """A17."""
    address = _address(agent, calls)
    assert path_of(address) == "/".join([agent, *(name for name, _ in calls)])
    assert depth_of(address) == len(calls)


@given(st.tuples(names, steps), st.tuples(names, steps))
def test_different_calls_have_different_addresses(
    one: tuple[str, list[tuple[str, int]]], other: tuple[str, list[tuple[str, int]]]
) -> None:
    """A17: an address is unique in its turn."""
    assert (_address(*one) == _address(*other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "path", "means"),
    [
        ("refund", "support/refund", True),
        ("refund", "support/answer/refund", True),
        ("answer/refund", "support/answer/refund", True),
        ("support/answer/refund", "support/answer/refund", True),
        ("answer", "support/answer", True),
        ("answer", "support/answer/refund", False),
        ("fund", "support/refund", False),
        ("wer/refund", "support/answer/refund", False),
        ("other/support/refund", "support/refund", False),
        ("support/refund", "support/answer/refund", False),
        ("Refund", "support/refund", False),
        ("", "support/refund", False),
    ],
)
def test_a_rules_name_is_a_tool_a_whole_path_or_a_paths_ending(name: str, path: str, means: bool) -> None:
    """A6: whole names at a time."""
    assert names_call(name, path) is means


@given(st.lists(names, min_size=1, max_size=4), st.lists(names, min_size=1, max_size=5))
def test_a_rules_name_means_a_call_where_its_names_are_the_paths_last(rule: list[str], path: list[str]) -> None:
    """A6."""
    assert names_call("/".join(rule), "/".join(path)) == (path[-len(rule) :] == rule)
