"""Whether a journal is of one piece: its tasks, replies, and one result for each call (`runtime.md` R4, R6.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from runtime_service.domain import told
from runtime_service.domain.addresses import Address, below, root_address
from runtime_service.domain.earlier import delegate_of
from runtime_service.domain.journal import (
    ApprovalAsked,
    BlockReceipt,
    DecidedAtOnce,
    InstructionsTakenUp,
    ModelReplied,
    OutputDidNotFit,
    Record,
    TaskStarted,
    ToolDone,
    ToolEnd,
    ToolStarted,
    TurnEnd,
    TurnEnded,
)
from runtime_service.domain.soundness.found import Kept, Wrong, at_line

AboutCall = DecidedAtOnce | ApprovalAsked | ToolStarted | ToolDone


@dataclass(slots=True)
class TaskSeen:
    """What was seen of one agent's call. Big texts are let go of as soon as nothing is held to them any more."""

    started: TaskStarted | None = None
    block: BlockReceipt | None = None
    take_ups: int = 0
    # A call was superseded, and the instructions have not been taken up since.
    to_take_up: bool = False
    replies: int = 0
    last_text: str | None = None
    # Its last reply makes no call, and was not found not to fit.
    handed_back: bool = False
    # Every call of its replies by its invocation, with its input while it has no result; None: erased.
    tools: dict[int, str] = field(default_factory=dict)
    open: dict[int, str | None] = field(default_factory=dict)
    ends: dict[int, ToolEnd] = field(default_factory=dict)


class Work:
    """Follows the tasks of a turn, and the calls of each."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._turn = kept.turn
        self._root = root_address(kept.turn.agent)
        self.tasks: defaultdict[str, TaskSeen] = defaultdict(TaskSeen)
        # What is remembered of calls whose end was not seen yet.
        self._not_seen = dict(kept.remembered)

    def see(self, record: Record) -> Iterator[Wrong]:
        """Take the next record in."""
        where, task, what = at_line(self._turn, record.line), self.tasks[record.address], record.what
        match what:
            case TaskStarted():
                yield from (Wrong(where, wrong, rule) for wrong, rule in self._started(record.address, task, what))
            case InstructionsTakenUp():
                yield from (Wrong(where, wrong, "R3.6") for wrong in self._taken_up(record.address, task, what))
            case ModelReplied():
                yield from (Wrong(where, wrong, rule) for wrong, rule in _replied(task, what))
                self._keep(task, what, erased=record.erase_time is not None)
            case OutputDidNotFit():
                if not task.handed_back:
                    yield Wrong(where, "its agent handed nothing back that could fit or not", "R6.2")
                task.handed_back = False
            case DecidedAtOnce() | ApprovalAsked() | ToolStarted() | ToolDone():
                yield from (Wrong(where, wrong, rule) for wrong, rule in _about(task, what, record))
                if isinstance(what, ToolDone):
                    yield from self._done(where, record.address, task, what)
                    yield from self._is_remembered(where, record, what)
            case TurnEnded(end=TurnEnd.DONE):
                erased = record.erase_time is not None
                yield from (Wrong(where, wrong, rule) for wrong, rule in self._over(what, erased=erased))
            case _:
                pass

    def end(self) -> Iterator[Wrong]:
        """Hold what delegates remember to what returned."""
        for line in self._not_seen:
            yield Wrong(at_line(self._turn, line), "a delegate remembers a call that did not return here", "R9")

    def done(self, address: str, invocation: int) -> ToolEnd | None:
        """Return how a call ended; None where it has no result."""
        return self.tasks[address].ends.get(invocation)

    def _started(self, address: Address, task: TaskSeen, what: TaskStarted) -> Iterator[tuple[str, str]]:
        if task.started is not None:
            yield "a task begins twice at one address", "R6.2"
        task.started, task.block = what, what.block
        if what.task_id != f"{self._turn.id}/{address}":
            yield "the task's id is not its turn's and its address", "R6.4"
        if address == self._root:
            if (what.agent, what.agent_version) != (self._turn.agent, self._turn.agent_version):
                yield "the turn's own task is not of the turn's agent", "R6.2"
        elif address not in self._calls_of(address):
            yield "nobody called this agent", "R6.2"
        if not self._kept.has_agent(what.agent, what.agent_version):
            yield f"there is no version {what.agent_version} of {what.agent}", "R6.2"
        if not self._kept.has_tools(what.tools_hash):
            yield "the tools that its model was shown are not kept", "R6.2"

    def _calls_of(self, address: Address) -> set[str]:
        above = address.rpartition("/")[0]
        task = self.tasks.get(above, TaskSeen())
        return {below(Address(above), tool, invocation) for invocation, tool in task.tools.items()}

    def _taken_up(self, address: Address, task: TaskSeen, what: InstructionsTakenUp) -> Iterator[str]:
        task.take_ups += 1
        if task.started is None or what.task_id != f"{self._turn.id}/{address}":
            yield "no such task was begun here"
        if what.number != task.take_ups:
            yield f"take-up {what.number} stands where {task.take_ups} is due"
        if task.block is not None and what.from_set != task.block.instruction_set:
            yield "it goes on from another set than its task had"
        task.block, task.to_take_up = what.block, False

    def _keep(self, task: TaskSeen, what: ModelReplied, *, erased: bool) -> None:
        task.replies += 1
        task.last_text, task.handed_back = None if erased else what.text, not what.calls
        for call in what.calls:
            task.tools[call.invocation] = call.tool
            task.open[call.invocation] = None if erased else call.input_json

    def _done(self, where: str, address: Address, task: TaskSeen, what: ToolDone) -> Iterator[Wrong]:
        task.open.pop(what.invocation, None)
        task.ends[what.invocation] = what.end
        task.to_take_up = task.to_take_up or what.end is ToolEnd.SUPERSEDED
        own = below(address, what.tool, what.invocation)
        inside = [at for at, other in self.tasks.items() if other.open and (at == own or at.startswith(f"{own}/"))]
        if inside:
            yield Wrong(where, f"it has a result, and calls of {inside[0]} have none", "R4")

    def _is_remembered(self, where: str, record: Record, what: ToolDone) -> Iterator[Wrong]:
        """Hold what a delegate remembers of a call to what it returned, as text or as JSON."""
        call = self._not_seen.get(record.line)
        if call is None or what.end is not ToolEnd.RETURNED:
            return
        del self._not_seen[record.line]
        agent = what.tool.partition(".")[0]
        said = call.said.output
        other = record.erase_time is None and what.output_json not in (said, told.as_json(said))
        if other or call.delegate != delegate_of(record.address, agent):
            yield Wrong(where, "what a delegate remembers is not what it returned", "R9")

    def _over(self, what: TurnEnded, *, erased: bool) -> Iterator[tuple[str, str]]:
        without = [at for at, task in self.tasks.items() if task.open]
        if without:
            yield f"the turn is done, and calls of {', '.join(sorted(without))} have no result", "R4"
        root = self.tasks[self._root]
        if not root.handed_back:
            yield "the turn is done, and its agent handed nothing back", "R5.1"
        # What fits a schema may have stood in a fence.
        elif not erased and root.last_text is not None and what.output not in root.last_text:
            yield "it hands back something else than its agent's last reply", "R5.1"


def _replied(task: TaskSeen, what: ModelReplied) -> Iterator[tuple[str, str]]:
    if task.started is None:
        yield "a model replied in a task that never began", "R6.2"
    if task.open:
        yield "the model was asked again before each of its calls had a result", "R3.3"
    if task.handed_back:
        yield "the model was asked again after it handed back what fits", "R6.2"
    if task.to_take_up:
        yield "the model was asked again before it took up the instructions that changed", "R3.6"
    due = len(task.tools) + 1
    if [call.invocation for call in what.calls] != list(range(due, due + len(what.calls))):
        yield "the calls of its replies are not numbered 1, 2, …", "R6.2"


def _about(task: TaskSeen, what: AboutCall, record: Record) -> Iterator[tuple[str, str]]:
    if task.tools.get(what.invocation) != what.tool:
        yield f"the model made no call {what.invocation} of {what.tool}", "R6.2"
    elif what.invocation in task.ends:
        yield "its call had a result already", "R4"
    elif isinstance(what, ApprovalAsked | ToolStarted) and record.erase_time is None:
        asked = task.open[what.invocation]
        if asked is not None and what.input_json != asked:
            yield "its input is not what the model asked for", "R2.7"
