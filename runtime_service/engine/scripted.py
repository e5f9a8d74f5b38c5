"""Scripted models: `scripted:NAME` answers by the rules of `NAME.yaml`.

For trying things out and for tests: what a model says is known beforehand, and what was asked of it is on
disk.

- The first rule that holds answers. One that has failed as often as it should and says nothing is passed
  over.
- Every request is one line of `NAME.requests.jsonl`, whole on disk before its answer is given: a line without
  `failed` is a reply that was paid for. Several processes may append to one file.
- A script is read when it is first used, and again when its file has changed; how often its rules have failed
  is counted from then on, in this process.
- Nothing here blocks the event loop.
"""

import asyncio
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from runtime_service.engine.expressions import ExpressionProblem
from runtime_service.engine.models import (
    Asked,
    DidNotFit,
    Message,
    ModelCall,
    ModelProblem,
    ModelRefused,
    ModelReply,
    ModelRequest,
    OnText,
    Replied,
    ToolResult,
    unanswered,
)
from runtime_service.engine.script_rules import Failure, Rule, ScriptProblem, read_script

RAW_FORM = "scripted/1"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


class Scripts:
    """The scripted models of a folder: the provider `scripted`."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._scripts: dict[str, _Script] = {}
        self._lock = threading.Lock()  # reading, counting and appending go together

    async def check(self, model: str) -> str | None:
        """Say what is wrong with a script's name, or None. Its file is looked at when it is used."""
        return self._wrong(model.partition(":")[2])

    async def priced(self, model: str) -> bool:
        """A script costs nothing."""
        return True

    def _wrong(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return "A script's name has 1 to 128 letters, digits, `_`, `-` and `.`, and does not begin with `.`."
        if self._folder is None:
            return "This service has no scripts: `TUTELAGE_RUNTIME_SCRIPTS_DIR` is not set."
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Answer by the first rule that holds. Raises `ModelProblem`; see `Model.ask`."""
        rule, problem = await asyncio.to_thread(self._look_up, request)
        if rule.delay_ms:
            await asyncio.sleep(rule.delay_ms / 1000)
        if problem:
            raise problem
        if on_text:
            for line in (rule.say or "").splitlines(keepends=True):
                on_text(line)
        return _reply(rule, request)

    def _look_up(self, request: ModelRequest) -> tuple[Rule, ModelProblem | None]:
        """Find the rule that answers, with the request on disk. Raises where there is none."""
        name = request.model.partition(":")[2]
        if self._folder is None or (wrong := self._wrong(name)):
            raise ModelRefused(request.model, wrong or "there are no scripts.")
        with self._lock:
            try:
                script = self._read(self._folder / f"{name}.yaml")
                over = _what_was_asked(request)
                chosen = script.choose(over, request.model)
                _append(self._folder / f"{name}.requests.jsonl", _line(request, over, chosen))
            except ScriptProblem as problem:
                raise ModelRefused(request.model, f"its script {name}.yaml cannot be used. {problem}") from None
            except OSError as problem:
                raise ModelRefused(request.model, f"{name}: {problem.strerror}.") from None
        if chosen.rule is None:
            assert chosen.problem
            raise chosen.problem
        return chosen.rule, chosen.problem

    def _read(self, file: Path) -> "_Script":
        try:
            found = file.stat()
        except FileNotFoundError:
            raise ScriptProblem("There is no such file in `TUTELAGE_RUNTIME_SCRIPTS_DIR`.") from None
        version = (found.st_mtime_ns, found.st_size, found.st_ino)
        script = self._scripts.get(file.name)
        if script is None or script.version != version:
            try:
                script = _Script(version, read_script(file.read_text("utf-8-sig")))
            except UnicodeDecodeError:
                raise ScriptProblem("It is no UTF-8.") from None
            self._scripts[file.name] = script
        return script


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What became of a request: the rule that held, if one did; why there is no reply, if there is none."""

    number: int | None
    rule: Rule | None
    problem: ModelProblem | None = None
    failed: int | str | None = None


@dataclass(slots=True)
class _Script:
    version: tuple[int, int, int]
    rules: tuple[Rule, ...]
    failures: Counter[int] = field(default_factory=Counter)

    def choose(self, over: Mapping[str, object], model: str) -> _Chosen:
        for number, rule in enumerate(self.rules):
            try:
                if not rule.holds(over):
                    continue
            except ExpressionProblem as wrong:
                said = f"rule [{number}].when: {wrong}"
                return _Chosen(number, None, ModelRefused(model, f"{said} {_shown(over)}"), said)
            if fail := self._failure_due(number, rule):
                problem = unanswered(model, fail.status, f"it answered {fail.status}.", fail.retry_after)
                return _Chosen(number, rule, problem, fail.status)
            if rule.answers:
                return _Chosen(number, rule)
        said = "no rule of its script holds."
        return _Chosen(None, None, ModelRefused(model, f"{said} {_shown(over)}"), said)

    def _failure_due(self, number: int, rule: Rule) -> Failure | None:
        fail = rule.fail
        if fail is None or (fail.times is not None and self.failures[number] >= fail.times):
            return None
        self.failures[number] += 1
        return fail


def _what_was_asked(request: ModelRequest) -> dict[str, object]:
    """The variables of `when` (settled 30): `step` and `results` are of this call alone."""
    return {
        "system": "\n\n".join(request.system),
        "messages": [{"role": _role(message), "text": message.text} for message in request.messages],
        "step": sum(isinstance(message, Replied) for message in request.this_call),
        "results": [message.text for message in request.this_call if isinstance(message, ToolResult)],
    }


def _role(message: Message) -> str:
    match message:
        case Asked() | DidNotFit():
            return "user"
        case Replied():
            return "assistant"
        case ToolResult():
            return "tool"


def _shown(over: Mapping[str, object]) -> str:
    """Show what was asked, each part cut."""
    parts = {name: json.dumps(value, ensure_ascii=False) for name, value in over.items()}
    # The end of a list is what is new in it.
    cut = {name: text if len(text) <= 400 else f"{text[:100]} … {text[-300:]}" for name, text in parts.items()}
    return "It was asked: " + ", ".join(f"{name} {text}" for name, text in cut.items()) + "."


def _line(request: ModelRequest, over: Mapping[str, object], chosen: _Chosen) -> bytes:
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **over,
        "tools": [tool.name for tool in request.tools],
        "rule": chosen.number,
    }
    if chosen.failed is not None:
        line["failed"] = chosen.failed
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _append(file: Path, line: bytes) -> None:
    """Add a line in one write, so that no other process writes into it."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(opened, line)
    finally:
        os.close(opened)


def _reply(rule: Rule, request: ModelRequest) -> ModelReply:
    text = rule.say or ""
    calls = tuple(ModelCall(call.tool, call.written) for call in rule.calls)
    ids = [call.id if call.id is not None else f"call_{n}" for n, call in enumerate(rule.calls, start=1)]
    tools = [part for tool in request.tools for part in (tool.name, tool.description, tool.input_schema_json)]
    return ModelReply(
        text=text,
        calls=calls,
        input_tokens=_tokens(*request.system, *(message.text for message in request.messages), *tools),
        output_tokens=_tokens(text, *(part for call in calls for part in (call.tool, call.input_json))),
        cost_micro_usd=0,
        raw_json=json.dumps({"ids": ids}, ensure_ascii=False),
        raw_form=RAW_FORM,
    )


def _tokens(*texts: str) -> int:
    """Count as if four characters were a token, and never none."""
    return max(1, -(-sum(map(len, texts)) // 4))
