"""What is said to a model and by it, in the library's own message form and back.

- The journal keeps a reply in the library's form (`pydantic-ai/1`): what a provider wants back to the letter (ids,
  signatures, thoughts) is in there. A later library reads it; where it does not, or where there is none, the message
  is built from text and calls, with ids made up by place.
- Providers take few letters in a tool's name. A tool that has others goes by a name that they take, the same in every
  request that shows the same tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import structlog
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as LibraryRequest
from pydantic_ai.tools import ToolDefinition

from runtime_service.engine.models import (
    Asked,
    DidNotFit,
    ModelCall,
    ModelReply,
    ModelRequest,
    Replied,
    ShownTool,
    ToolResult,
)

log = structlog.get_logger()

RAW_FORM = "pydantic-ai/1"
MOST_NAME_LETTERS = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """The tools of a request by the names that providers take."""

    def __init__(self, tools: Sequence[ShownTool]) -> None:
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        # Those whose name is good as it stands keep it.
        for tool in sorted(tools, key=lambda tool: tool.name != _taken(tool.name)):
            name, number = _taken(tool.name), 1
            while name in self._ours:
                number += 1
                name = f"{_taken(tool.name)[: MOST_NAME_LETTERS - 4]}_{number}"
            self._theirs[tool.name], self._ours[name] = name, tool.name

    def theirs(self, name: str) -> str:
        return self._theirs.get(name) or _taken(name)

    def ours(self, name: str) -> str:
        """Return a tool's own name. One that the model made up stays as it wrote it."""
        return self._ours.get(name, name)


def _taken(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:MOST_NAME_LETTERS]


def shown(tools: Sequence[ShownTool], names: ToolNames) -> list[ToolDefinition]:
    """Return the tools as the library takes them: the schema as its host wrote it, held to by our own gate."""
    return [
        ToolDefinition(
            name=names.theirs(tool.name),
            description=tool.description,
            parameters_json_schema=_object_schema(tool.input_schema_json),
            strict=False,
        )
        for tool in tools
    ]


def _object_schema(written: str) -> dict[str, Any]:
    schema = json.loads(written) if written else {}
    # A tool's input is an object wherever it goes; providers want that said.
    return {"type": "object", **schema} if isinstance(schema, dict) else {"type": "object"}


def messages(request: ModelRequest, names: ToolNames) -> list[ModelMessage]:
    """Return everything said, as the library takes it: the system prompt's parts first, in their order."""
    parts: list[Any] = [SystemPromptPart(part) for part in request.system]
    said: list[ModelMessage] = []
    calls: list[ToolCallPart] = []
    for place, message in enumerate(request.messages):
        match message:
            case Asked(text) | DidNotFit(text):
                parts.append(UserPromptPart(text))
            case ToolResult(call, _, text):
                parts.append(ToolReturnPart(calls[call].tool_name, text, calls[call].tool_call_id))
            case Replied() if message.text or message.calls:
                response = _response(message, place, names)
                calls = response.tool_calls
                said += [LibraryRequest(parts), response]
                parts = []
    return [*said, LibraryRequest(parts)]


def _response(replied: Replied, place: int, names: ToolNames) -> ModelResponse:
    return _as_recorded(replied) or _made_up(replied, place, names)


def _as_recorded(replied: Replied) -> ModelResponse | None:
    """Read a reply back as the library gave it; None where it cannot be read, or is another's."""
    if replied.raw_form != RAW_FORM:
        return None
    try:
        [recorded] = ModelMessagesTypeAdapter.validate_json(replied.raw_json)
    except ValueError as problem:  # ValidationError is one
        log.warning("model.reply_not_read", problem=type(problem).__name__)
        return None
    fits = isinstance(recorded, ModelResponse) and len(recorded.tool_calls) == len(replied.calls)
    return recorded if fits and isinstance(recorded, ModelResponse) else None


def _made_up(replied: Replied, place: int, names: ToolNames) -> ModelResponse:
    parts: list[Any] = [TextPart(replied.text)] if replied.text else []
    for number, call in enumerate(replied.calls):
        # Nine letters and digits: no provider takes fewer kinds of ids.
        parts.append(ToolCallPart(names.theirs(call.tool), call.input_json, f"c{place % 10**4:04}{number % 10**4:04}"))
    return ModelResponse(parts)


def reply_of(response: ModelResponse, names: ToolNames, *, cost_micro_usd: int) -> ModelReply:
    """Return what a model said, in our words, with the library's own form beside it."""
    return ModelReply(
        text=response.text or "",
        calls=tuple(ModelCall(names.ours(call.tool_name), _written(call.args)) for call in response.tool_calls),
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cost_micro_usd=cost_micro_usd,
        raw_json=ModelMessagesTypeAdapter.dump_json([response]).decode(),
        raw_form=RAW_FORM,
    )


def _written(args: str | dict[str, Any] | None) -> str:
    """Return a call's input as the model wrote it. Nothing written is an input without fields."""
    if isinstance(args, str):
        return args or "{}"
    return json.dumps(args or {}, ensure_ascii=False, separators=(",", ":"))
