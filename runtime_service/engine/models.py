"""The port to model providers.

What the engine says to a model and hears from it, in words that belong to no provider. A provider turns a
`ModelRequest` into its own and its answer into a `ModelReply`.

    ModelProblem
    ├── ModelUnavailable    asked again it may answer: 408, 429, 5xx, a time-out, a broken connection
    └── ModelRefused        asked again it says the same: a bad request, a wrong key, a reply too large

- A model's own call ids repeat from step to step. They live in the raw form alone: the engine names a call by
  its place in its reply, and so do results.
- `raw_json` is the reply as its provider keeps it; what a later request sends back of it (ids, signatures,
  thoughts) is read from there. `raw_form` says whose form it is, with its version. A provider that does not
  know the form of a `Replied` builds the message from text and calls, with ids that it makes up.
- A call's `input_json` is what the model wrote, to the letter. It need not be JSON.
- Whoever gives a request up cancels the task that asks.
- A request that got no answer is made again here, a few times, for every provider alike. One of whose reply
  something was told is not: what was told would be told twice.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import stamina
import stamina.instrumentation
import structlog

from runtime_service.domain.problems import RuntimeProblem

log = structlog.get_logger()

MOST_REPLY_BYTES = 1024 * 1024  # text and calls (R12)
MOST_RAW_BYTES = 2 * 1024 * 1024

# How often a request is made, and how long it waits in between. A provider that asks for longer is not waited for
# here: the turn is let go of, and taken up again when the provider said (R6.7).
MOST_TRIES = 3
FIRST_WAIT_SECONDS = 0.5
MOST_JITTER_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0

# Why a model is not asked where its agent limits the money.
PRICE_UNKNOWN = (
    "nobody knows its price, and the agent limits what a turn may cost. Limit tokens or requests instead of money."
)

# It would log a provider's words.
stamina.instrumentation.set_on_retry_hooks([])

# Says False where nobody heard.
OnText = Callable[[str], bool | None]


class ModelProblem(RuntimeProblem):
    """A model did not reply. `str` is a sentence for a person. Raised as one of the two below."""

    cause: str


class ModelUnavailable(ModelProblem):
    """The provider does not answer now; what was asked can be asked again.

    `status` is the HTTP status, None where there was none (a time-out, a broken connection); `retry_after`
    the provider's own word on when, in seconds.
    """

    reason: ClassVar[str] = "PART_UNAVAILABLE"

    def __init__(self, model: str, cause: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(
            f"The model {model} does not answer: {cause}", retry_after=retry_after, part="model", model=model
        )
        self.cause = cause
        self.status = status


class ModelRefused(ModelProblem):
    """The model does not reply to this request, however often it is asked. `status` as above."""

    reason: ClassVar[str] = "INVALID_FIELD"

    def __init__(self, model: str, cause: str, *, status: int | None = None) -> None:
        super().__init__(f"The model {model} gave no reply: {cause}", model=model)
        self.cause = cause
        self.status = status


def unanswered(
    model: str, status: int, cause: str, retry_after: float | None = None
) -> ModelUnavailable | ModelRefused:
    """Say which problem an HTTP status is: 408, 429 and 5xx can be asked again, others cannot."""
    if status in (408, 429) or status >= 500:
        return ModelUnavailable(model, cause, status=status, retry_after=retry_after)
    return ModelRefused(model, cause, status=status)


@dataclass(frozen=True, slots=True)
class ShownTool:
    """A tool as a model is shown it."""

    name: str
    description: str
    input_schema_json: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool that a model calls, with the input as it wrote it."""

    tool: str
    input_json: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What the agent was asked: the user's message. A call begins with one."""

    text: str


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply that the model gave before. Without a raw form: what an earlier turn handed back."""

    text: str
    calls: tuple[ModelCall, ...] = ()
    raw_json: str = ""
    raw_form: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told of a call of the reply before (R4): `call` is its place there, 0 first.

    Results follow their reply in its order, one for each call.
    """

    call: int
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class DidNotFit:
    """What the model is told of a reply that it handed back and that does not fit. The call goes on."""

    text: str


Message = Asked | Replied | ToolResult | DidNotFit


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked.

    `system` are the parts of the system prompt that are not empty: purpose, skill, a sentence where earlier
    turns are left out, and the instruction block last. `messages` are earlier turns (what was asked, what was
    handed back), or a delegate's earlier calls, then this call from its own `Asked` on.
    """

    model: str
    system: tuple[str, ...]
    messages: tuple[Message, ...]
    tools: tuple[ShownTool, ...] = ()

    @property
    def this_call(self) -> tuple[Message, ...]:
        """The messages of the call that asks: from the last `Asked` on."""
        begins = max((at for at, said in enumerate(self.messages) if isinstance(said, Asked)), default=0)
        return self.messages[begins:]


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model said. Built by its provider, with `checked` before it is handed on."""

    text: str
    calls: tuple[ModelCall, ...]
    input_tokens: int
    output_tokens: int
    cost_micro_usd: int
    raw_json: str
    raw_form: str

    def checked(self, model: str) -> "ModelReply":
        """Hand the reply back, or raise `ModelRefused` where it is larger than a record holds (R12)."""
        said = [self.text, *(part for call in self.calls for part in (call.tool, call.input_json))]
        if (size := _bytes(*said)) > MOST_REPLY_BYTES:
            raise ModelRefused(model, f"its reply has {size} bytes, and {MOST_REPLY_BYTES} is the most.")
        if (size := _bytes(self.raw_json)) > MOST_RAW_BYTES:
            raise ModelRefused(
                model,
                f"its reply has {size} bytes with all that belongs to it; {MOST_RAW_BYTES} is the most.",
            )
        return self


class Model(Protocol):
    """Whatever can be asked."""

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Ask once, without retries. `on_text` is told the text as it comes.

        Raises `ModelProblem`, perhaps after some text was told. Cancelled, it gives the request up.
        """
        ...


class Provider(Model, Protocol):
    """Models of one kind."""

    async def check(self, model: str) -> str | None:
        """Say what is wrong with a model's name, `provider:name`, or None."""
        ...

    async def priced(self, model: str) -> bool:
        """Whether what a model's replies cost is known. Of a name that is good."""
        ...


class Models:
    """Every model there is, by `provider:name`. What no provider is named for is the library's."""

    def __init__(self, providers: Mapping[str, Provider], library: Provider | None = None) -> None:
        self._providers = dict(providers)
        self._library = library

    async def check(self, model: str) -> str | None:
        """Say what is wrong with a model's name, as `PutAgent` is told it, or None."""
        provider, colon, name = model.partition(":")
        if not colon or not provider or not name:
            return f"A model is named `provider:name`. This service has: {self._known()}."
        found = self._providers.get(provider, self._library)
        if found is None:
            return f"There is no provider `{provider[:40]}`. This service has: {self._known()}."
        return await found.check(model)

    async def priced(self, model: str) -> bool:
        """Whether what a model's replies cost is known. A model that cannot be asked costs nothing."""
        return await self.check(model) is not None or await self._provider(model).priced(model)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Ask the model that the request names, again where it does not answer (C13). As `Model.ask`."""
        if wrong := await self.check(request.model):
            raise ModelRefused(request.model[:200], wrong)
        provider = self._provider(request.model)
        telling = _Telling(on_text)
        async for attempt in stamina.retry_context(
            telling.wait_after,
            attempts=MOST_TRIES,
            timeout=None,
            wait_initial=FIRST_WAIT_SECONDS,
            wait_max=LONGEST_WAIT_SECONDS,
            wait_jitter=MOST_JITTER_SECONDS,
        ):
            with attempt:
                reply = await provider.ask(request, telling.tell if on_text else None)
        return reply.checked(request.model)

    def _provider(self, model: str) -> Provider:
        provider = self._providers.get(model.partition(":")[0], self._library)
        assert provider is not None
        return provider

    def _known(self) -> str:
        known = [f"`{provider}:…`" for provider in sorted(self._providers)]
        return ", ".join([*known, "those of `docs/models.md`"] if self._library else known) or "none"


class _Telling:
    """What was told of a reply, which decides whether its request may be made again."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._told = False

    def tell(self, text: str) -> bool:
        if self._on_text is not None and self._on_text(text) is not False:
            self._told = True
        return self._told

    def wait_after(self, problem: Exception) -> bool | float:
        """Say whether a request may be made again after a problem; as a number, in how many seconds."""
        if not isinstance(problem, ModelUnavailable):
            return False
        log.warning("model.did_not_answer", status=problem.status, retry_after=problem.retry_after)
        after = problem.retry_after or 0.0
        if self._told or after > LONGEST_WAIT_SECONDS:
            return False
        # Not sooner than the provider said, nor all at once.
        return after + random.uniform(0, MOST_JITTER_SECONDS) if after > FIRST_WAIT_SECONDS else True  # noqa: S311


def _bytes(*texts: str) -> int:
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
