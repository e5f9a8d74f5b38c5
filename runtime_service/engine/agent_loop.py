"""The loop of a hosted agent, rebuilt from its records (`runtime.md` R6.2).

Ask the model, run the tools that it calls, until it hands back. What was recorded is used as it stands: the n-th
reply of an address is its n-th step, and nothing is compared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runtime_service.domain import told
from runtime_service.domain.addresses import Address, depth_of, path_of, root_address
from runtime_service.domain.agents import Agent, AgentSpec, HostedLoop, Skill, tools_hash
from runtime_service.domain.earlier import Earlier, Said
from runtime_service.domain.journal import InstructionsTakenUp, ModelReplied, RequestedCall, TaskStarted, ToolEnd
from runtime_service.domain.problems import NoSuchThing
from runtime_service.domain.rules import Level, SettingInForce
from runtime_service.domain.turns import Turn
from runtime_service.engine.budget import Budget
from runtime_service.engine.gate import Gate
from runtime_service.engine.handing_back import asked_for, does_not_fit, handed_back
from runtime_service.engine.making import Leave, Making, Task
from runtime_service.engine.memory import Memory
from runtime_service.engine.models import (
    PRICE_UNKNOWN,
    Asked,
    DidNotFit,
    Message,
    ModelCall,
    ModelRefused,
    ModelReply,
    ModelRequest,
    Models,
    ModelUnavailable,
    OnText,
    Replied,
    ShownTool,
    ToolResult,
)
from runtime_service.engine.toolbox import Catalogue, Toolbox
from runtime_service.engine.units.turns import Append
from runtime_service.engine.words import Piece, Words
from runtime_service.engine.writer import Rest, Writer
from runtime_service.teaching_link import Block, NewTask, Teaching


class AgentLoop:
    """Runs the agents of one turn for one writer."""

    def __init__(
        self,
        writer: Writer,
        gate: Gate,
        models: Models,
        toolbox: Toolbox,
        catalogue: Catalogue,
        teaching: Teaching,
        words: Words,
        memory: Memory,
    ) -> None:
        self._writer = writer
        self._words = words
        self._gate = gate
        self._models = models
        self._toolbox = toolbox
        self._catalogue = catalogue
        self._teaching = teaching
        self._memory = memory

    async def run(self, earlier: Earlier) -> str:
        """Run the turn's own agent, behind the earlier turns of its branch, and return what it hands back.

        Raises `ModelRefused`, `OutputDoesNotFit` and `LimitReached`, which end the turn.
        """
        turn = self._writer.turn
        agent = await self._agent(turn.agent, turn.agent_version)
        self._budget = Budget(turn, agent.spec.limits, self._writer.past)
        root, skill = root_address(turn.agent), _skill(agent, turn.skill)
        return await self._run(root, agent, skill, turn.input, turn.settings, lambda: earlier)

    async def _run_below(self, making: Making, leave: Leave) -> tuple[str, Said]:
        """Run an agent that another one calls as a tool; return what it hands back, as JSON text, and what was said.

        Raises `YesGone` where the yes on which it was to begin has fallen.
        """
        task, shown, address = making.task, making.shown, making.address
        agent = await self._agent(shown.agent, shown.agent_version)
        self._budget.check_depth(depth_of(address))
        skill = _skill(agent, shown.skill)
        text = leave.input_json if skill.input_schema_json else str(json.loads(leave.input_json)["input"])
        own = agent.spec.approve
        adds = (SettingInForce(Level.AGENT, own, only_adds=True),) if own is not None else ()
        remembers = await self._memory.of(making.delegate, address) if making.delegate else Earlier
        output = await self._run(address, agent, skill, text, (*adds, *task.settings), remembers, leave.approval_id)
        return output if skill.output_schema_json else told.as_json(output), Said(text, output)

    async def _run(
        self,
        address: Address,
        agent: Agent,
        skill: Skill,
        text: str,
        settings: tuple[SettingInForce, ...],
        remembers: Callable[[], Earlier],
        approval_id: str = "",
    ) -> str:
        task, block_text, earlier = await self._begin(address, agent, skill, settings, remembers, approval_id)
        left_out = told.LEFT_OUT if earlier.cut else ""
        messages: list[Message] = [*_messages(earlier), Asked(text)]
        asked, taken_up = 0, 0
        # Each new reply is paid for: the turn's limits end it.
        for step in itertools.count(1):
            task = replace(task, step=step)
            system = tuple(part for part in (agent.spec.purpose, asked_for(skill), left_out, block_text) if part)
            replied = await self._reply(task, agent.spec, system, messages, asked)
            messages.append(_as_said(replied))
            if not replied.calls:
                if not (wrong := does_not_fit(self._writer, task, skill, replied)):
                    return handed_back(skill, replied.text)
                messages.append(DidNotFit(wrong))
                continue
            asked += len(replied.calls)
            results = await self._gate.perform(task, replied.text, replied.calls, self._run_below)
            for place, (call, done) in enumerate(zip(replied.calls, results, strict=True)):
                messages.append(ToolResult(place, call.tool, told.told(done)))
            if any(done.end is ToolEnd.SUPERSEDED for done in results):
                taken_up += 1
                task, block_text = await self._take_up(task, taken_up)
        raise AssertionError("steps never end by themselves")

    async def _begin(
        self,
        address: Address,
        agent: Agent,
        skill: Skill,
        settings: tuple[SettingInForce, ...],
        remembers: Callable[[], Earlier],
        approval_id: str,
    ) -> tuple[Task, str, Earlier]:
        """Begin the task, or find it begun: its block, its tools and what it remembers stand as they did then.

        On a yes it begins in the transaction that finds it standing (R3.6): raises `YesGone`.
        """
        writer, turn = self._writer, self._writer.turn
        new = NewTask(f"{turn.id}/{address}", agent.spec.name, skill.name, skill.version, path_of(address))
        started = writer.past.task(address).started
        begins_on = approval_id if started is None else ""
        recorded = started.block if started is not None else None

        async def begun() -> Block:
            return (await self._teaching.begin_task(turn, new)).as_recorded(recorded)

        block = await writer.until_there(begun, begins_on)
        if started is not None:
            tools = await self._toolbox.kept(turn.tenant, started.tools_hash)
            earlier = remembers()
        else:
            tools = await self._toolbox.for_new_task(turn.tenant, agent.spec)
            earlier = remembers()
            started = TaskStarted(
                task_id=new.id,
                words=block.words,
                agent=agent.spec.name,
                agent_version=agent.version,
                skill=skill.name,
                skill_version=skill.version,
                block=block.receipt,
                tools_hash=tools_hash(tools),
            )
            unit = Append(writer.hold, [(address, started)], uses=begins_on, tools=(started.tools_hash, tools))
            written = writer.submit(unit)
            if begins_on:
                await written
            writer.past.add(address, started)
        named = {shown.declaration.name: shown for shown in tools}
        return Task(address, started, started.block, settings, named), block.text, earlier

    async def _take_up(self, task: Task, number: int) -> tuple[Task, str]:
        """Take the instructions up that changed while the task waited: its next request carries them (R3.6)."""
        writer, task_id = self._writer, task.started.task_id
        tenant = writer.turn.tenant
        recorded = writer.past.task(task.address).take_ups
        before = recorded[number - 1].block if len(recorded) >= number else None

        async def taken_up() -> Block:
            return (await self._teaching.take_up(tenant, task_id, number)).as_recorded(before)

        block = await writer.until_there(taken_up)
        if before is None:
            from_set = task.block.instruction_set
            writer.record(task.address, InstructionsTakenUp(task_id, number, from_set, block.receipt))
        return replace(task, block=recorded[number - 1].block), block.text

    async def _reply(
        self, task: Task, spec: AgentSpec, system: tuple[str, ...], messages: Sequence[Message], asked: int
    ) -> ModelReplied:
        """Return the reply of a step: as recorded, or else asked for and recorded."""
        recorded = self._writer.past.task(task.address).replies
        if task.step <= len(recorded):
            return recorded[task.step - 1]
        assert isinstance(spec.runs, HostedLoop)
        shown = tuple(
            ShownTool(one.declaration.name, one.declaration.description, one.declaration.input_schema_json)
            for one in task.tools.values()
        )
        request = ModelRequest(spec.runs.model, system, tuple(messages), shown)
        if self._budget.in_money and not await self._models.priced(request.model):
            raise ModelRefused(request.model, PRICE_UNKNOWN)
        tell = self._teller(task.address)
        while True:
            try:
                async with self._budget.request():
                    reply = await self._models.ask(request, tell)
                    replied = _as_recorded(request.model, reply, asked)
                    self._writer.record(task.address, replied)
                    return replied
            except ModelUnavailable as problem:
                # The turn rests, and is tried again by itself (R6.7).
                await self._writer.rest(Rest(cause=str(problem), again=True, after=problem.retry_after or 0.0))

    def _teller(self, address: Address) -> OnText:
        """Return what tells what a model writes: behind the records before it, once those are on disk.

        The model does not wait for that (R5.2): what it wrote until then is told then.
        """
        writer, words, turn_id = self._writer, self._words, self._writer.turn.id
        before = writer.newest
        early: list[str] = []

        def on_disk(kept: asyncio.Future[Any]) -> None:
            if early and not kept.cancelled() and kept.exception() is None:
                line = kept.result().line if isinstance(kept.result(), Turn) else writer.hold.line
                words.tell(turn_id, Piece(address, line, "".join(early)))
            early.clear()

        def tell(text: str) -> bool:
            if early or (before is not None and not before.done()):
                early.append(text)
                return words.listened(turn_id)
            return words.tell(turn_id, Piece(address, writer.hold.line, text))

        if before is not None:
            before.add_done_callback(on_disk)
        return tell

    async def _agent(self, name: str, version: str) -> Agent:
        agent = await self._catalogue.agent(self._writer.turn.tenant, name, version)
        if agent is None:
            raise NoSuchThing("agent", name)
        return agent


def _messages(earlier: Earlier) -> list[Message]:
    return [message for said in earlier.said for message in (Asked(said.input), Replied(said.output))]


def _skill(agent: Agent, name: str) -> Skill:
    skill = agent.spec.skill(name)
    if skill is None:
        raise NoSuchThing("skill", name)
    return skill


def _as_said(replied: ModelReplied) -> Replied:
    """Return a recorded reply as its model is told it again."""
    calls = tuple(ModelCall(call.tool, call.input_json) for call in replied.calls)
    return Replied(replied.text, calls, replied.raw_json, replied.raw_form)


def _as_recorded(model: str, reply: ModelReply, asked: int) -> ModelReplied:
    """Return a reply as it is recorded. `asked`: how many calls of its task came before."""
    calls = (
        RequestedCall(asked + place, call.tool, call.input_json) for place, call in enumerate(reply.calls, start=1)
    )
    return ModelReplied(
        request_hash="",
        model=model,
        text=reply.text,
        calls=tuple(calls),
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost_micro_usd=reply.cost_micro_usd,
        raw_json=reply.raw_json,
        raw_form=reply.raw_form,
    )
