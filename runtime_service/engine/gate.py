"""The one door to every tool: rule, question, answer, start, result (`runtime.md` R2, R3).

A call goes through the same steps whoever takes the turn: each step is found in the records, or else done and recorded.
`questions.py` asks people, `attempts.py` has hosts run what may run.

Invariants:
- All calls of one reply are judged before any of them that changes things runs (R3.1).
- Every call gets exactly one `ToolDone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from runtime_service.domain import canonical_json, told
from runtime_service.domain.addresses import path_of
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.earlier import Said
from runtime_service.domain.effects import Declaration
from runtime_service.domain.journal import DecidedAtOnce, RequestedCall, ToolDone, ToolEnd
from runtime_service.domain.ledger import YesGone
from runtime_service.domain.problems import ApprovalRequired, NoSuchThing
from runtime_service.domain.replay import CallPast
from runtime_service.domain.rules import JudgedCall, Ruling, Verdict, rule_on
from runtime_service.domain.turns import Attended
from runtime_service.engine import schemas
from runtime_service.engine.attempts import Attempts
from runtime_service.engine.handing_back import OutputDoesNotFit
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.making import JudgeAgain, Leave, Making, NotToBeHad, Task, finish
from runtime_service.engine.models import ModelRefused
from runtime_service.engine.questions import Questions
from runtime_service.engine.toolbox import Toolbox
from runtime_service.engine.writer import FOR_A_PERSON, Branches, Writer
from runtime_service.teaching_link import Teaching

MOST_INPUT_BYTES = 256 * 1024

# Runs an agent that another one calls as a tool, and returns what it hands back, as JSON text, with what was said.
RunAgent = Callable[[Making, Leave], Awaitable[tuple[str, Said]]]


class Gate:
    """Takes the calls of one turn's models through, for one writer."""

    def __init__(
        self, writer: Writer, toolbox: Toolbox, hosts: Hosts, teaching: Teaching, *, tool_seconds: float
    ) -> None:
        self._writer = writer
        self._toolbox = toolbox
        self._questions = Questions(writer, toolbox, teaching)
        self._attempts = Attempts(writer, self._questions, toolbox, hosts, tool_seconds=tool_seconds)
        self._tenant = writer.turn.tenant

    async def perform(
        self, task: Task, said: str, calls: Sequence[RequestedCall], run_agent: RunAgent
    ) -> list[ToolDone]:
        """Take a reply's calls through, side by side; return their results, in the reply's order."""
        open_calls = [call for call in calls if self._past(task, call).done is None]
        makings = _in_line([making for call in open_calls if (making := self._make(task, said, call)) is not None])
        judged = [(making, self._judge(making)) for making in makings if not self._begun(making)]
        if asked := [(making, ruling) for making, ruling in judged if ruling.verdict is Verdict.ASK]:
            self._refuse_a_call(asked[0][0])
            await self._questions.ask(asked)
        left = [making for making in makings if self._past(task, making.call).done is None]
        if left:
            branches = self._writer.branches(len(left))
            async with asyncio.TaskGroup() as group:
                for making in left:
                    group.create_task(self._branch(branches, making, run_agent))
        results = [self._past(task, call).done for call in calls]
        assert all(results), "a call has no result"
        return [done for done in results if done is not None]

    def _refuse_a_call(self, making: Making) -> None:
        """A plain call has nobody to ask: it fails before any call of the reply has run (R3.2)."""
        turn = self._writer.turn
        if turn.attended is Attended.BY_A_CALL:
            raise ApprovalRequired(turn.id, making.address)

    async def _branch(self, branches: Branches, making: Making, run_agent: RunAgent) -> None:
        """Take one call through. One that fails keeps its place: the turn ends by it, and is not let go of."""
        await self._take_through(making, run_agent)
        self._writer.wake(_done(making.task, making.call.invocation))
        branches.ended()

    # Before anything runs: the input and the rules

    def _make(self, task: Task, said: str, call: RequestedCall) -> Making | None:
        """Look at what the model wrote; where it cannot run, tell the model and return None."""
        shown = task.tools.get(call.tool)
        if shown is None:
            never = ToolDone("", call.invocation, call.tool, told.as_json(told.NO_SUCH_TOOL), ToolEnd.NOT_TO_BE_HAD)
            self._writer.record(task.address, never)
            return None
        making = Making(task, call, shown, said)
        return making if self._begun(making) or self._fits(making) else None

    def _begun(self, making: Making) -> bool:
        """Whether it was judged before: asked about, or started."""
        past = self._past(making.task, making.call)
        nested = self._writer.past.task(making.address).started
        return bool(past.asked or past.started or nested)

    def _fits(self, making: Making) -> bool:
        """Whether the input fits the declaration; where it does not, the model is told what is wrong."""
        wrong = _input_problem(making.call.input_json, making.shown.declaration)
        if wrong is not None:
            finish(self._writer, making, ToolEnd.NOT_TO_BE_HAD, told.as_json(wrong))
        return wrong is None

    def _judge(self, making: Making) -> Ruling:
        """Judge a call by all its settings (R2); a refusal is recorded and told to the model at once."""
        judged = JudgedCall(
            tool=making.call.tool,
            path=path_of(making.address),
            effects=self._toolbox.effects_now(self._tenant, making.shown),
            is_agent=bool(making.shown.agent),
        )
        ruling = rule_on(making.task.settings, judged)
        if ruling.verdict not in (Verdict.RUN, Verdict.ASK):
            call = making.call
            decided = DecidedAtOnce(call.invocation, call.tool, ruling.asked_by, ruling.verdict, ruling.reason)
            no = told.as_json(told.not_allowed(ruling.reason))
            finish(self._writer, making, ToolEnd.REFUSED, no, before=(decided,))
        return ruling

    # One call, from its question to its result

    async def _take_through(self, making: Making, run_agent: RunAgent) -> None:
        """Take one judged call to its result, judging anew wherever what would run is not what was judged."""
        making = await self._as_last_asked(making)
        past = self._past(making.task, making.call)
        while past.done is None:
            try:
                if (leave := await self._questions.leave(making)) is not None:
                    await self._run(making, leave, run_agent)
            except YesGone:
                continue
            except JudgeAgain as changed:
                making = await self._judge_again(changed.making)
            except NotToBeHad:
                finish(self._writer, making, ToolEnd.NOT_TO_BE_HAD, told.as_json(told.NOT_TO_BE_HAD))

    async def _as_last_asked(self, making: Making) -> Making:
        """Return the call with the declaration under which it was last asked about."""
        asked = self._past(making.task, making.call).asked
        if not asked or asked[-1].declaration_hash == making.shown.declaration.hash:
            return making
        name, digest = making.shown.declaration.name, asked[-1].declaration_hash
        declaration = await self._toolbox.declaration(self._tenant, name, digest)
        if declaration is None:
            raise NoSuchThing("declaration", digest)
        return replace(making, shown=replace(making.shown, declaration=declaration))

    async def _judge_again(self, making: Making) -> Making:
        """Judge a call as if it were asked for now: an earlier answer is not used (R1.4, R3.5)."""
        asked = self._past(making.task, making.call).asked
        earlier = asked[-1].approval_id if asked else ""
        if not self._fits(making):
            return making
        ruling = self._judge(making)
        if ruling.verdict is Verdict.ASK:
            self._refuse_a_call(making)
            await self._questions.ask([(making, ruling)], earlier)
            return replace(making, free=False)
        if ruling.verdict is Verdict.RUN and earlier:
            await self._questions.withdraw(earlier)
        return replace(making, free=True)

    async def _run(self, making: Making, leave: Leave, run_agent: RunAgent) -> None:
        if not making.shown.agent:
            await self._attempts.run(making, leave)
            return
        await self._its_place(making)
        if self._writer.past.task(making.address).started is None:
            await self._questions.check(making, leave)
        try:
            output_json, said = await run_agent(making, leave)
        except (ModelRefused, OutputDoesNotFit) as problem:
            finish(self._writer, making, ToolEnd.FAILED, told.as_json(str(problem)), leave=leave)
        else:
            finish(self._writer, making, ToolEnd.RETURNED, output_json, leave=leave, said=said)

    async def _its_place(self, making: Making) -> None:
        """Wait until the calls that it begins behind have their results (R9)."""
        calls = self._writer.past.task(making.task.address).calls
        while ahead := [number for number in making.behind if calls[number].done is None]:
            await self._writer.rest(FOR_A_PERSON, *(_done(making.task, number) for number in ahead))

    def _past(self, task: Task, call: RequestedCall) -> CallPast:
        return self._writer.past.call(task.address, call.invocation)


def _in_line(makings: Sequence[Making]) -> list[Making]:
    """Place each call of a delegate behind those before it: one after the other, in the reply's order (R9)."""
    before: dict[str, tuple[int, ...]] = {"": ()}
    placed = []
    for making in makings:
        behind = before.setdefault(making.delegate, ())
        placed.append(replace(making, behind=behind))
        if making.delegate:
            before[making.delegate] = (*behind, making.call.invocation)
    return placed


def _done(task: Task, invocation: int) -> str:
    """Name the word that a call has its result."""
    return f"done:{task.address}#{invocation}"


def _input_problem(input_json: str, declaration: Declaration) -> str | None:
    """Say what is wrong with an input, field by field; None where it fits the declaration's schema."""
    try:
        value = canonical_json.parse(input_json, limit_bytes=MOST_INPUT_BYTES)
    except JsonProblem as problem:
        return str(problem)
    found = schemas.problems(declaration.input_schema_json, value)
    return schemas.told("The input does not fit, so this call did not run:", "the input", found) if found else None
