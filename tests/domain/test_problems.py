"""Why something was refused: one class for each reason, each with a sentence that helps."""

import inspect
from datetime import UTC, datetime

import pytest
from tutelage.common.v1.errors_pb2 import ErrorReason

from runtime_service.domain import canonical_json, problems
from runtime_service.domain.problems import RuntimeProblem

EACH: list[RuntimeProblem] = [
    problems.TurnWaiting("t1"),
    problems.TurnUnfinished("t1", ["c1", "c2"]),
    problems.TurnEnded("t1"),
    problems.TurnHeld("t1", retry_after=12.5),
    problems.WriterSuperseded("t1", 2),
    problems.LimitReached("t1", "gardener", "model_requests", 50, 50),
    problems.ConversationBusy("conv1", "t1"),
    problems.ConversationBusy("conv1", "t2", failed="t1"),
    problems.ApprovalRequired("t1", "support/refund#1"),
    problems.AlreadyDecided("ap1", by="ann", time=datetime(2026, 3, 1, tzinfo=UTC), decision="DENIED"),
    problems.FingerprintChanged("ap1"),
    problems.InstructionsChanged("ap1"),
    problems.ApprovalExpired("ap1"),
    problems.NotPutToYou("ap1"),
    problems.PersonRequired("decide this"),
    problems.NotAdmitted("register agents", ["builds"]),
    problems.NoSuchThing("turn", "t9"),
    problems.InvalidFields([("work.skill", "There is no such skill."), ("work.input", "It is empty.")]),
    problems.InputDoesNotFit("refund", [("order", "It is missing.")]),
    problems.RequestIdReused("r1"),
    problems.NoToolHost("refund"),
    problems.PartUnavailable("teaching service", retry_after=1),
    problems.NotInThisRelease("GiveGrant"),
    canonical_json.JsonProblem("This is not JSON."),
]


def _classes() -> set[type[RuntimeProblem]]:
    return {
        value
        for _, value in inspect.getmembers(problems, inspect.isclass)
        if issubclass(value, RuntimeProblem) and value is not RuntimeProblem
    }


def test_every_problem_is_tried_here_and_stands_in_the_tree() -> None:
    assert {type(problem) for problem in EACH} == _classes() | {canonical_json.JsonProblem}
    assert problems.__doc__
    assert all(type(problem).__name__ in problems.__doc__ for problem in EACH)


def test_every_reason_is_the_contracts_and_of_one_class_alone() -> None:
    reasons = [cls.reason for cls in _classes()]
    assert len(set(reasons)) == len(reasons)
    assert {f"ERROR_REASON_{reason}" for reason in reasons} <= set(ErrorReason.keys())


@pytest.mark.parametrize("problem", EACH, ids=lambda problem: type(problem).__name__)
def test_each_says_in_a_sentence_what_is_wrong_and_carries_ids_that_are_not_empty(
    problem: RuntimeProblem,
) -> None:
    assert str(problem).endswith(".")
    assert all(isinstance(value, str) and value for value in problem.metadata.values())


def test_every_wrong_field_is_named_with_what_is_wrong_with_it() -> None:
    """R12."""
    wrong = problems.InvalidFields([("a", "It is empty."), ("b[1]", "It stands twice.")])
    assert wrong.fields == (("a", "It is empty."), ("b[1]", "It stands twice."))
    assert str(wrong) == "a: It is empty. b[1]: It stands twice."


def test_what_can_be_tried_again_says_when() -> None:
    assert problems.TurnHeld("t1", retry_after=12.5).retry_after == 12.5
    assert problems.TurnEnded("t1").retry_after is None
