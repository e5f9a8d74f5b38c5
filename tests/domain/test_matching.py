"""What a program asks is answered by what was recorded of that very question: runtime.md R6.3, issue 5.8."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.addresses import Address
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.matching import Kind, Mark, Question, answered_by, question
from runtime_service.domain.problems import RequestIdReused

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "matching.json").read_text())


def asked(told: dict[str, str]) -> Question:
    return question(Address(told["parent"]), Kind(told["kind"]), told["name"], told["input"])


@pytest.mark.parametrize("vector", VECTORS["questions"], ids=lambda vector: vector["about"])
def test_published_questions_have_their_hash(vector: dict[str, str]) -> None:
    one = asked(vector)

    assert (one.input, one.hash) == (vector["canonical"], vector["hash"])


@pytest.mark.parametrize("vector", VECTORS["runs"], ids=lambda vector: vector["about"])
def test_published_runs_are_answered_as_they_say(vector: dict[str, Any]) -> None:
    """Each run is one writer's; `line` is that of the record that answers, 0 where the ask is new."""
    marks: dict[str, Mark] = {}
    for ask in vector["asks"]:
        lines = [one["line"] for one in vector["recorded"] if one["question"] == ask["question"]]
        mark = answered_by(ask["ask_id"], ask["question"], lines, marks)
        marks[ask["ask_id"]] = mark
        assert mark.line == ask["line"], ask


def test_an_ask_that_comes_again_as_another_question_is_refused() -> None:
    """R8: `ask_id` is the program's own key of one question."""
    marks = {"1": answered_by("1", "one", [3], {})}

    assert answered_by("1", "one", [3], marks) == Mark("one", 3)
    with pytest.raises(RequestIdReused):
        answered_by("1", "another", [3, 4], marks)


def test_an_input_that_two_readers_could_take_for_two_things_is_no_question() -> None:
    """Settled 9."""
    with pytest.raises(JsonProblem):
        question(Address("planner"), Kind.TOOL, "book", '{"n":1,"n":2}')


# Programs, run again and again

# Few questions, so that the same is often asked twice; some that differ in one part alone, or in how they are written.
SAME = [[("planner", Kind.MODEL, "m", '{"a":1}'), ("planner", Kind.MODEL, "m", ' {"a": 1.0} ')]]
OTHERS = [
    ("planner", Kind.MODEL, "m", '{"a":2}'),
    ("planner", Kind.MODEL, "n", '{"a":1}'),
    ("planner", Kind.TOOL, "m", '{"a":1}'),
    ("planner/step#1", Kind.MODEL, "m", '{"a":1}'),
    ("planner", Kind.AGENT, "m", '{"a":1}'),
    ("planner", Kind.MODEL, "m", '{"a":"1"}'),
]
FORMS = SAME + [[other] for other in OTHERS]
Asked = int  # which of FORMS


@dataclass
class Journal:
    """A turn's rows: every record of a question by its line, in whichever order they came to be written."""

    records: dict[int, Asked] = field(default_factory=dict)
    paid: int = 0

    def write(self, what: Asked) -> int:
        line = len(self.records) + 1
        self.records[line] = what
        self.paid += 1
        return line


class Run:
    """One run of a program, by one writer, over the module under test; held to the rule as each ask is answered."""

    def __init__(self, journal: Journal, chance: random.Random) -> None:
        self._journal = journal
        self._chance = chance
        self._hashes = [question(Address(one[0]), *one[1:]).hash for forms in FORMS for one in forms[:1]]
        self.marks: dict[str, Mark] = {}
        self.open: list[tuple[str, Asked]] = []
        # The reference: what each ask was told, and which lines each kind of question has not given away.
        self._told: dict[str, tuple[Asked, int]] = {}
        self._left: defaultdict[Asked, list[int]] = defaultdict(list)
        for line, what in journal.records.items():
            self._left[what].append(line)

    def ask(self, ask_id: str, what: Asked) -> int:
        """Ask, hold the answer to the reference, and return its line."""
        parent, kind, name, text = self._chance.choice(FORMS[what])
        one = question(Address(parent), kind, name, text)
        lines = [line for line, recorded in self._journal.records.items() if self._hashes[recorded] == one.hash]
        self._chance.shuffle(lines)
        mark = answered_by(ask_id, one.hash, lines, self.marks)
        assert mark.line == self._expected(ask_id, what)
        self.marks[ask_id] = mark
        return mark.line

    def _expected(self, ask_id: str, what: Asked) -> int:
        if ask_id not in self._told:
            left = self._left[what]
            self._told[ask_id] = (what, left.pop(0) if left else 0)
            if not self._told[ask_id][1]:
                self.open.append((ask_id, what))
        return self._told[ask_id][1]

    def finish(self, place: int) -> None:
        """What one of the new asks came to is recorded, and marked as its own."""
        ask_id, what = self.open.pop(place)
        line = self._journal.write(what)
        self.marks[ask_id] = Mark(self.marks[ask_id].question, line)
        self._told[ask_id] = (what, line)

    def hold(self) -> None:
        """No record answers two asks, and none another question."""
        lines = [mark.line for mark in self.marks.values() if mark.line]
        assert len(lines) == len(set(lines))
        for mark in self.marks.values():
            if mark.line:
                assert self._hashes[self._journal.records[mark.line]] == mark.question


programs = st.lists(st.integers(0, len(FORMS) - 1), max_size=12)


@given(st.lists(programs, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_program_however_changed_is_answered_by_the_rule(runs: list[list[Asked]], chance: random.Random) -> None:
    """Each run another program: asks in any order, some again, finishing in any order, some never (a writer dies)."""
    journal = Journal()
    for program in runs:
        run = Run(journal, chance)
        made: list[tuple[str, Asked]] = []
        for place, what in enumerate(program):
            made.append((f"ask-{place}", what))
            run.ask(*made[-1])
            while chance.random() < 0.3:
                run.ask(*chance.choice(made))
            while run.open and chance.random() < 0.5:
                run.finish(chance.randrange(len(run.open)))
            run.hold()


@given(programs, st.randoms(use_true_random=False))
def test_a_program_that_asks_the_same_in_any_order_pays_nothing_again(
    program: list[Asked], chance: random.Random
) -> None:
    """Also where its asks have other ids, and were finished in another order."""
    journal = Journal()
    first = Run(journal, chance)
    for place, what in enumerate(program):
        first.ask(f"first-{place}", what)
    while first.open:
        first.finish(chance.randrange(len(first.open)))
    paid = journal.paid

    again = Run(journal, chance)
    shuffled = chance.sample(program, len(program))
    lines = [again.ask(f"again-{place}", what) for place, what in enumerate(shuffled)]

    assert not again.open
    assert (sorted(lines), journal.paid) == (sorted(journal.records), paid)


@given(programs, programs, st.randoms(use_true_random=False))
def test_a_changed_program_pays_for_exactly_what_is_new(
    before: list[Asked], after: list[Asked], chance: random.Random
) -> None:
    """As many records more as it asks oftener than was ever recorded."""
    journal = Journal()
    for program in (before, after):
        run = Run(journal, chance)
        for place, what in enumerate(program):
            run.ask(str(place), what)
        while run.open:
            run.finish(0)

    most = sum(max(before.count(what), after.count(what)) for what in range(len(FORMS)))
    assert journal.paid == most
