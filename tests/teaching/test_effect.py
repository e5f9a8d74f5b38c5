"""Whether an instruction helped: counted over the work that whoever asks may read (B14, T6.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from tutelage.errors import TutelageError
from tutelage.teaching.v1 import corrections_pb2
from tutelage.teaching.v1 import instructions_pb2 as pb

from tests.postgres import both_databases
from tests.teaching.service import ACCOUNTS, Teaching, refusal

# Drawn from, work since, corrected since, not followed, work before, corrected before.
Counts = tuple[int, int, int, int, int, int]


async def effect(teaching: Teaching, instruction_id: str, by: str = "hale") -> Counts:
    said = await teaching[by].instructions.GetEffect(pb.GetEffectRequest(instruction_id=instruction_id))
    since = (said.drawn_from, said.work_since, said.corrected_since, said.not_followed)
    return *since, said.work_before, said.corrected_before


async def withdraw(teaching: Teaching, correction_id: str, by: str) -> None:
    request = corrections_pb2.WithdrawCorrectionRequest(correction_id=correction_id, why="I misread it.")
    await teaching[by].corrections.WithdrawCorrection(request)


async def test_work_and_corrections_are_counted_before_an_instruction_and_since(teaching: Teaching) -> None:
    """B14: what it was drawn from, how such work went before, how work went that was sent it."""
    early = [(await teaching.begin())[0] for _ in range(3)]
    drawn = [(await teaching.correct(one)).id for one in early[:2]]
    told = await teaching.teach("Be brief.", from_corrections=drawn)
    late = [(await teaching.begin())[0] for _ in range(4)]
    await teaching.correct(late[0])
    await teaching.correct(late[1], despite_instruction_id=told.id)

    assert await effect(teaching, told.id) == (2, 4, 2, 1, 3, 2)


async def test_a_task_with_three_corrections_counts_once(teaching: Teaching) -> None:
    """T6.3: before and since; what a correction names is counted by corrections."""
    before, _ = await teaching.begin()
    drawn = [(await teaching.correct(before)).id for _ in range(3)]
    told = await teaching.teach("Be brief.", from_corrections=drawn)
    since, _ = await teaching.begin()
    for despite in (told.id, told.id, ""):
        await teaching.correct(since, despite_instruction_id=despite)

    assert await effect(teaching, told.id) == (3, 1, 1, 2, 1, 1)


async def test_withdrawn_corrections_do_not_count_and_erased_ones_do(teaching: Teaching) -> None:
    """T6.3, in every count; one that was withdrawn and then erased stays withdrawn."""
    before, _ = await teaching.begin()
    drawn = [await teaching.correct(before) for _ in range(3)]
    told = await teaching.teach("Be brief.", from_corrections=[one.id for one in drawn])
    since, _ = await teaching.begin()
    named = [await teaching.correct(since, despite_instruction_id=told.id) for _ in range(3)]
    counted = [await effect(teaching, told.id)]
    for taken, erased, both in (drawn, named):
        await withdraw(teaching, taken.id, "gus")
        await withdraw(teaching, both.id, "gus")
        teaching.rows(
            "UPDATE corrections SET wrong = '', right = '', because = '', erase_time = time "
            f"WHERE id IN ('{erased.id}', '{both.id}')"
        )
    counted.append(await effect(teaching, told.id))
    for each in (drawn, named):
        teaching.rows(f"UPDATE corrections SET erase_time = NULL WHERE id = '{each[1].id}'")
        await withdraw(teaching, each[1].id, "gus")
    counted.append(await effect(teaching, told.id))

    assert counted == [(3, 1, 1, 3, 1, 1), (1, 1, 1, 1, 1, 1), (0, 1, 0, 0, 1, 0)]


async def test_only_work_that_it_is_for_counts_as_before(teaching: Teaching) -> None:
    """T6.3, T5.1: the same agent's, by its one skill, scope or person; other work is neither before nor since."""
    for kind in ({}, {"skill": "Price"}, {"scope": "team:1"}, {"work_for": "stranger"}, {"agent": "Till"}):
        task_id, _ = await teaching.begin(**kind)
        await teaching.correct(task_id, "sam")
    aims: tuple[dict[str, str], ...] = ({}, {"skill": "WriteTag"}, {"on_scope": "team:1"}, {"for_person": "stranger"})
    told = [await teaching.teach(f"Guidance {number}.", **aim) for number, aim in enumerate(aims)]
    await teaching.begin(skill="Price", work_for="stranger")

    assert [await effect(teaching, one.id) for one in told] == [
        (0, 1, 0, 0, 4, 4),
        (0, 0, 0, 0, 3, 3),
        (0, 0, 0, 0, 1, 1),
        (0, 1, 0, 0, 1, 1),
    ]


async def test_a_proposal_is_counted_over_the_work_that_it_would_have_been_for(teaching: Teaching) -> None:
    """It is not active yet, or never was: all such work is from before."""
    first, _ = await teaching.begin()
    drawn = await teaching.correct(first)
    proposal = await teaching.propose("Be brief.", from_corrections=[drawn.id])
    proposed = await effect(teaching, proposal.id, "gus")
    await teaching.reject(proposal.id)
    await teaching.begin()

    assert proposed == (1, 0, 0, 0, 1, 1)
    assert await effect(teaching, proposal.id, "gus") == (1, 0, 0, 0, 2, 1)


async def test_retirement_and_rollback_change_nothing_of_what_was_counted(teaching: Teaching) -> None:
    """Issue 7: work while it is retired is neither before nor since; what it is sent after a rollback is since."""
    await teaching.begin()
    told = await teaching.teach("Be brief.")
    since, _ = await teaching.begin()
    await teaching.correct(since, despite_instruction_id=told.id)
    active = await effect(teaching, told.id)
    await teaching.retire(told.id)
    retired = await effect(teaching, told.id)
    meanwhile, _ = await teaching.begin()
    await teaching.correct(meanwhile)
    still = await effect(teaching, told.id)
    await teaching.roll_back(1)
    again, _ = await teaching.begin()
    restored = await effect(teaching, told.id)
    await teaching.correct(again)
    await teaching.roll_back(0)
    await teaching.begin()

    assert active == retired == still == (0, 1, 1, 1, 1, 0)
    assert restored == (0, 2, 1, 1, 1, 0)
    assert await effect(teaching, told.id) == (0, 2, 2, 1, 1, 0)


async def test_what_was_left_out_for_want_of_room_was_not_sent(idle: Teaching) -> None:
    """T5.3: such work began since, but not with it."""
    await idle.start(most_instructions=2)
    left_out = await idle.teach("For everything.")
    await idle.teach("For tags.", skill="WriteTag")
    told = await idle.teach("For Gus.", for_person="gus")
    _, block = await idle.begin(skill="WriteTag", work_for="gus")

    assert left_out.id not in block.instruction_ids
    assert await effect(idle, left_out.id) == (0, 0, 0, 0, 0, 0)
    assert await effect(idle, told.id) == (0, 1, 0, 0, 0, 0)


async def test_work_that_took_it_up_was_corrected_all_the_same_only_by_what_came_after(teaching: Teaching) -> None:
    """B13: the correction that the instruction is drawn from does not speak against it, nor a later one for it."""
    corrected, _ = await teaching.begin()
    drawn = await teaching.correct(corrected)
    uncorrected, _ = await teaching.begin()
    told = await teaching.teach("Be brief.", from_corrections=[drawn.id])
    for task_id in (corrected, uncorrected):
        await teaching.take_up(task_id, 1)
    taken_up = await effect(teaching, told.id)
    await teaching.correct(uncorrected, despite_instruction_id=told.id)
    after = await effect(teaching, told.id)
    await teaching.correct(corrected)
    await teaching.teach("Be kind.")
    await teaching.take_up(corrected, 2)

    assert taken_up == (1, 2, 0, 0, 2, 1)
    assert after == (1, 2, 1, 1, 2, 1)
    assert await effect(teaching, told.id) == (1, 2, 2, 1, 2, 1)


async def test_a_correction_of_ones_own_counts_while_one_may_read_its_work(teaching: Teaching) -> None:
    """T6.3, R10: work is counted, and what was said of it; who once supervised keeps their corrections alone."""
    before, _ = await teaching.begin()
    drawn = await teaching.correct(before, "sam")
    told = await teaching.teach("Be brief.", from_corrections=[drawn.id])
    since, _ = await teaching.begin()
    await teaching.correct(since, "sam", despite_instruction_id=told.id)
    sam = teaching.client(teaching.token("sam", roles=("uses",)))

    said = await sam.instructions.GetEffect(pb.GetEffectRequest(instruction_id=told.id))

    assert (
        await sam.corrections.GetCorrection(corrections_pb2.GetCorrectionRequest(correction_id=drawn.id))
    ).correction
    assert said == pb.GetEffectResponse()
    assert await effect(teaching, told.id, "sam") == (1, 1, 1, 1, 1, 1)


async def test_what_one_may_not_see_has_no_effect_to_be_asked_for(teaching: Teaching) -> None:
    """R10: an instruction for another person, of another tenant, or none."""
    told = await teaching.teach("Call her Ms Hale.", for_person="hale")
    elsewhere = teaching.client(teaching.token("hale", tenant="elsewhere"))

    refused = [
        await refusal(effect(teaching, told.id, "gus")),
        await refusal(elsewhere.instructions.GetEffect(pb.GetEffectRequest(instruction_id=told.id))),
        await refusal(effect(teaching, "no-such")),
        await refusal(effect(teaching, "")),
    ]

    assert {one.reason for one in refused} == {"NO_SUCH_THING"}
    assert refused[0].metadata["id"] == told.id


# Against everything that happened, counted one by one


@dataclass(eq=False)
class Piece:
    """A task, and at which step it began and was first sent what."""

    id: str
    kind: dict[str, str]
    began: int
    sent: dict[str, int] = field(default_factory=dict)
    put_to: set[str] = field(default_factory=set)

    def is_read_by(self, who: str) -> bool:
        roles = ACCOUNTS[who][1]
        if {"teaches", "supervises", "audits"} & set(roles) or who in (self.kind["work_for"], self.kind["given_by"]):
            return True
        return not self.put_to.isdisjoint({who, *(f"role:{role}" for role in roles)})


@dataclass(eq=False)
class Said:
    """A correction."""

    id: str
    of: Piece
    by: str
    at: int
    despite: str
    stands: bool = True


@dataclass(eq=False)
class Told:
    """An instruction."""

    id: str
    aim: dict[str, str]
    drawn_from: list[Said]
    active_at: float = float("inf")

    def is_for(self, piece: Piece) -> bool:
        names = {"skill": "skill", "on_scope": "scope", "for_person": "work_for"}
        return all(piece.kind[names[name]] == value for name, value in self.aim.items())


class History:
    """What happened to one agent, at random, through the API; and what that comes to."""

    AIMS: ClassVar[tuple[dict[str, str], ...]] = (
        {},
        {},
        {"skill": "WriteTag"},
        {"on_scope": "team:1"},
        {"for_person": "gus"},
    )

    def __init__(self, teaching: Teaching, seed: int) -> None:
        self.teaching = teaching
        self.random = random.Random(seed)
        self.step = 0
        self.pieces: list[Piece] = []
        self.said: list[Said] = []
        self.told: list[Told] = []

    async def happens(self, steps: int) -> None:
        happenings: dict[Callable[[], Any], int] = {
            self.begin: 12, self.correct: 10, self.teach: 4, self.take_up: 6,
            self.put: 2, self.withdraw: 2, self.retire: 1, self.roll_back: 1,
        }  # fmt: skip
        await self.begin()
        for self.step in range(1, steps):
            [happening] = self.random.choices(list(happenings), list(happenings.values()))
            try:
                await happening()
            except TutelageError as refused:
                if refused.reason not in ("TOO_MUCH_TO_SEND", "ALREADY_ON_SET"):
                    raise

    async def begin(self) -> None:
        pick = self.random.choice
        kind = {
            "skill": pick(("WriteTag", "Price")),
            "scope": pick(("team:1", "team:2", "")),
            "work_for": pick(("gus", "stranger", "hale")),
            "given_by": pick(("gus", "stranger", "sam")),
        }
        task_id, block = await self.teaching.begin(**kind)
        self.pieces.append(Piece(task_id, kind, self.step, dict.fromkeys(block.instruction_ids, self.step)))

    async def take_up(self) -> None:
        piece = self.random.choice(self.pieces[-4:])
        number = len((await self.teaching.task(piece.id, "hale")).sent)
        block = await self.teaching.take_up(piece.id, number)
        piece.sent = dict.fromkeys(block.instruction_ids, self.step) | piece.sent

    async def put(self) -> None:
        who = self.random.choice(("gus", "stranger", "role:uses", "role:supervises"))
        piece = self.random.choice(self.pieces)
        await self.teaching.put(piece.id, f"p{self.step}", who)
        piece.put_to.add(who)

    async def correct(self) -> None:
        piece = self.random.choice(self.pieces[-6:])
        by = self.random.choice([who for who in ("gus", "stranger", "sam") if piece.is_read_by(who)])
        despite = self.random.choice([*piece.sent, ""])
        correction = await self.teaching.correct(piece.id, by, despite_instruction_id=despite)
        self.said.append(Said(correction.id, piece, by, self.step, despite))

    async def withdraw(self) -> None:
        if standing := [one for one in self.said if one.stands]:
            one = self.random.choice(standing)
            await withdraw(self.teaching, one.id, one.by)
            one.stands = False

    async def teach(self) -> None:
        standing = [one for one in self.said if one.stands]
        drawn = self.random.sample(standing, min(len(standing), self.random.randrange(4)))
        aim = self.random.choice(self.AIMS)
        proposal = await self.teaching.propose("Be brief.", "hale", from_corrections=[one.id for one in drawn], **aim)
        told = Told(proposal.id, dict(aim), drawn)
        self.told.append(told)
        if self.random.random() < 0.8:
            await self.teaching.activate(proposal)
            told.active_at = self.step

    async def retire(self) -> None:
        if members := (await self.teaching.newest()).members:
            await self.teaching.retire(self.random.choice(members))

    async def roll_back(self) -> None:
        await self.teaching.roll_back(self.random.randint(0, (await self.teaching.newest()).number))

    def expected(self, told: Told, who: str) -> Counts:
        """Count one by one."""
        read = [one for one in self.pieces if one.is_read_by(who)]
        said = [one for one in self.said if one.stands and one.of in read]
        since = [one for one in read if told.id in one.sent]
        before = [one for one in read if told.is_for(one) and one.began < told.active_at]

        def corrected(pieces: Iterable[Piece], *, with_it: bool) -> int:
            return sum(
                any(one.of is piece and (one.at >= piece.sent.get(told.id, one.at + 1)) is with_it for one in said)
                for piece in pieces
            )

        return (
            sum(one in said for one in told.drawn_from),
            len(since),
            corrected(since, with_it=True),
            sum(one.despite == told.id for one in said),
            len(before),
            corrected(before, with_it=False),
        )


@both_databases
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_count_is_what_one_by_one_comes_to_whoever_asks(idle: Teaching, seed: int) -> None:
    """B14, T6.3 (issue 7): over work, people, take-ups, corrections, retirements and rollbacks at random."""
    await idle.start(most_instructions=6)
    other, _ = await idle.begin("Till")
    await idle.correct(other)
    history = History(idle, seed)
    await history.happens(160)

    counted: dict[str, list[Counts]] = {}
    for who in ("gus", "stranger", "hale", "sam", "audra"):
        seen = [one for one in history.told if one.aim.get("for_person", who) == who or who not in ("gus", "stranger")]
        counted[who] = [await effect(idle, one.id, who) for one in seen]
        assert counted[who] == [history.expected(one, who) for one in seen]

    # It tells them apart, and nothing is 0 throughout.
    assert counted["hale"] == counted["sam"] == counted["audra"]
    assert counted["gus"] != counted["stranger"]
    for who in ("gus", "stranger", "hale"):
        assert all(map(any, zip(*counted[who], strict=True))), counted[who]
    assert any(one.began < told.active_at < one.sent.get(told.id, 0) for one in history.pieces for told in history.told)
