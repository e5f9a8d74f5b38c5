"""One model of the library pydantic-ai, asked through its `direct` calls. Loading this module loads the library.

- A reply is streamed, whoever listens: that alone gives a call's input to the letter from every provider, and keeps a
  long reply from looking like a dead connection. A model whose provider refuses to stream is asked without.
- A reply counts once its end has come. What was told of one that broke off is no reply.
- The library retries nothing: who asks does (`models.py`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from decimal import ROUND_UP, Decimal
from typing import Any

import structlog
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from runtime_service.engine.library_messages import ToolNames, messages, reply_of, shown
from runtime_service.engine.models import (
    MOST_RAW_BYTES,
    ModelProblem,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OnText,
    unanswered,
)

log = structlog.get_logger()

# Of what a provider says is wrong.
MOST_WORDS = 300
# A longer wait than this is no answer.
LONGEST_RETRY_AFTER_SECONDS = 24 * 60 * 60.0


class LibraryModel:
    """A model by its name, `provider:name`. Made off the event loop: it loads packages and certificates."""

    def __init__(self, name: str, provider: Callable[[str], Provider[Any]], seconds: float) -> None:
        """Raises whatever the library raises where a package or a key is missing."""
        self.name = name
        self.library = infer_model(name, provider)
        self._streams = True
        self._settings = ModelSettings(request_timeout=seconds, cache=True)
        if "max_retries" not in self.library.unsupported_settings:
            self._settings["max_retries"] = 0

    @property
    def priced(self) -> bool:
        """Whether somebody knows its price."""
        return self._price(RequestUsage(input_tokens=1, output_tokens=1)) is not None

    async def ask(self, request: ModelRequest, on_text: OnText | None) -> ModelReply:
        """Ask once. Raises `ModelProblem`."""
        names = ToolNames(request.tools)
        try:
            response = await self._response(request, names, on_text)
            self._refuse_nothing(response)
            return reply_of(response, names, cost_micro_usd=self._cost(response))
        except ModelProblem:
            raise
        except Exception as failure:
            raise self._problem(failure) from failure

    async def _response(self, request: ModelRequest, names: ToolNames, on_text: OnText | None) -> ModelResponse:
        said = messages(request, names)
        parameters = ModelRequestParameters(function_tools=shown(request.tools, names))
        asked: dict[str, Any] = {"model_settings": self._settings, "model_request_parameters": parameters}
        if self._streams:
            try:
                return await self._streamed(said, asked, on_text)
            except exceptions.ModelHTTPError as refusal:
                if not _is_about_streaming(refusal):
                    raise
                self._streams = False
        response = await model_request(self.library, said, **asked)
        if on_text is not None and response.text:
            on_text(response.text)
        return response

    async def _streamed(self, said: list[Any], asked: dict[str, Any], on_text: OnText | None) -> ModelResponse:
        size, told = 0, False
        async with model_request_stream(self.library, said, **asked) as stream:
            async for event in stream:
                text, other = _pieces(event)
                size += len(text) + other
                if size > MOST_RAW_BYTES:
                    raise ModelRefused(self.name, f"its reply goes on behind {MOST_RAW_BYTES} letters.")
                if text and on_text is not None:
                    apart = isinstance(event, PartStartEvent) and event.previous_part_kind != "text"
                    on_text(f"\n\n{text}" if told and apart else text)
                    told = True
            response = stream.get()
        if self._broke_off(response):
            raise ModelUnavailable(self.name, "its reply broke off.")
        return response

    def _cost(self, response: ModelResponse) -> int:
        """Return what a reply cost in millionths of a dollar; 0 where nobody knows.

        Some name another model in the reply than was asked for. Where that one has no price, this one's holds.
        """
        try:
            price = response.cost().total_price
        except (LookupError, ValueError, AssertionError):
            price = self._price(response.usage) or Decimal(0)
        return int((price * 1_000_000).to_integral_value(ROUND_UP))

    def _price(self, usage: RequestUsage) -> Decimal | None:
        model = self.library
        reply = ModelResponse([], usage=usage, model_name=model.model_name)
        reply.provider_name, reply.provider_url = model.system, model.base_url
        try:
            return reply.cost().total_price
        except (LookupError, ValueError, AssertionError):
            return None

    def _broke_off(self, response: ModelResponse) -> bool:
        """Whether a stream ended without saying so."""
        ended: object = (response.provider_details or {}).get("finish_reason")
        # Of chat completions that broke off the library says that they stopped.
        if not isinstance(self.library, OpenAIChatModel) or response.finish_reason != "stop":
            ended = ended or response.finish_reason
        return response.state != "complete" or not ended

    def _refuse_nothing(self, response: ModelResponse) -> None:
        """Refuse a reply that holds nothing because it was held back or cut off."""
        if response.text or response.tool_calls:
            return
        if response.finish_reason == "content_filter":
            why = _words((response.provider_details or {}).get("refusal"))
            raise ModelRefused(self.name, f"its provider held the reply back.{' It said: ' + why if why else ''}")
        if response.finish_reason == "length":
            raise ModelRefused(self.name, "it wrote as much as it may before it said anything.")

    def _problem(self, failure: Exception) -> ModelProblem:
        """Say which of our problems the library's failure is."""
        name = self.name
        after = getattr(failure, "retry_after", None)
        after = None if after is None else min(after, LONGEST_RETRY_AFTER_SECONDS)
        status = failure.status_code if isinstance(failure, exceptions.ModelHTTPError) else None
        match failure:
            case exceptions.ModelQuotaExceededError():
                # Somebody may pay: the turn need not end for it.
                cause = f"its account has nothing left. {_words(failure.body)}"
                return ModelUnavailable(name, cause.strip(), status=status, retry_after=after)
            case exceptions.ModelHTTPError(status_code=status):
                return unanswered(name, status, f"it answered {status}. {_words(failure.body)}".strip(), after)
            case exceptions.ModelRequestTimeout():
                return ModelUnavailable(name, f"it did not end its reply within {failure.timeout:g} seconds.")
            case exceptions.ModelTimeoutError():
                return ModelUnavailable(name, "nothing came from it for too long.")
            case exceptions.ModelConnectionError(phase="connect"):
                return ModelUnavailable(name, "it cannot be reached.")
            case exceptions.ModelConnectionError():
                return ModelUnavailable(name, "the connection to it broke.")
            case exceptions.ModelRequestRejectedError() | exceptions.ContentFilterError():
                return ModelRefused(name, _words(failure.message))
            case exceptions.UserError() | NotImplementedError():
                return ModelRefused(name, f"the library cannot ask it this. {_words(str(failure))}")
            case exceptions.ModelAPIError(in_stream=True):
                return ModelUnavailable(name, f"it gave its reply up. {_words(failure.message)}", retry_after=after)
        # Where, and not what: a failure's words may be those of a reply.
        frames = traceback.extract_tb(failure.__traceback__)
        at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        log.warning("model.reply_unreadable", problem=type(failure).__name__, at=at)
        return ModelUnavailable(name, "what it answered cannot be read.")


def _pieces(event: ModelResponseStreamEvent) -> tuple[str, int]:
    """Return the text that an event brings, and how much of anything else."""
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text, 0
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text, 0
        case PartStartEvent(part=ThinkingPart(content=text)):
            return "", len(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
            return "", len(text)
        case PartStartEvent(part=ToolCallPart(tool_name=name, args=args)):
            return "", len(name) + _letters(args)
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=args)):
            return "", _letters(args)
        case _:
            return "", 0


def _letters(args: str | Mapping[str, Any] | None) -> int:
    return len(args) if isinstance(args, str) else len(str(args or ""))


def _is_about_streaming(refusal: exceptions.ModelHTTPError) -> bool:
    """Whether a provider refused a request because it was to be streamed."""
    said = _error(refusal.body)
    return refusal.status_code == 400 and isinstance(said, dict) and said.get("param") == "stream"


def _error(body: object) -> object:
    return body["error"] if isinstance(body, dict) and "error" in body else body


def _words(body: object) -> str:
    """Return what a provider says is wrong, on one line and cut."""
    said = _error(body)
    if isinstance(said, dict):
        said = said.get("message")
    line = " ".join(said.split()) if isinstance(said, str) else ""
    return line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]} …"
