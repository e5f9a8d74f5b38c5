"""Models of real providers: every `provider:name` that the library pydantic-ai has.

Provider APIs change weekly and are not what this product is about. What is ours: keys, when a name is good, and
that the library is loaded once somebody uses such a model, and then beside the event loop, since it takes seconds.

- A key is in the environment (`ANTHROPIC_API_KEY`), or in a file that `ANTHROPIC_API_KEY_FILE` names. The variable
  wins. A file is read at every request, so a changed key is used from the next one on.
- Keys are nobody's to see: they are cut out of what a provider says.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from runtime_service.engine.models import ModelProblem, ModelRefused, ModelReply, ModelRequest, OnText

if TYPE_CHECKING:
    from pydantic_ai.providers import Provider

    from runtime_service.engine.library_models import LibraryModel

_OF_KEY_FILES = ("_KEY_FILE", "_TOKEN_FILE")
_OURS = "TUTELAGE_"
MOST_KEY_BYTES = 64 * 1024
MOST_MODELS = 1_000
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_EXTRA = re.compile(r"pydantic-ai-slim\[([a-z0-9-]+)\]")


class NotToBeHad(Exception):
    """A model cannot be asked as things are. `str` is the sentence for whoever named it."""


class LibraryModels:
    """The library's models, each made when it is first named. An async context: leaving it ends their connections."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        # What was made with the keys as they are. Models are light; each provider has its connections.
        self._keys: Mapping[str, str] = {}
        self._models: dict[str, LibraryModel] = {}
        self._providers: dict[str, Provider[Any]] = {}
        # The environment is one for all: models are made one after the other.
        self._lock = asyncio.Lock()
        self._connections = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connections.aclose()

    async def check(self, model: str) -> str | None:
        """Say what keeps a model from being asked, or None: its provider, a package, a key."""
        try:
            await self._model(model)
        except NotToBeHad as wrong:
            return str(wrong)
        return None

    async def priced(self, model: str) -> bool:
        """Whether somebody knows a model's price."""
        return (await self._model(model)).priced

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Ask the provider. Raises `ModelProblem`; see `Model.ask`."""
        try:
            model = await self._model(request.model)
        except NotToBeHad as wrong:
            raise ModelRefused(request.model[:200], str(wrong)) from None
        try:
            return await model.ask(request, on_text)
        except ModelProblem as problem:
            raise _without_keys(problem, self._keys) from None

    async def _model(self, name: str) -> LibraryModel:
        """Return the model of a name, made anew where a key's file has changed. Raises `NotToBeHad`."""
        keys = await asyncio.to_thread(_read_keys) if _key_files() else {}
        async with self._lock:
            if keys != self._keys:
                self._keys, self._models, self._providers = keys, {}, {}
            if name not in self._models:
                known = set(self._providers)
                try:
                    model = await asyncio.to_thread(_make, name, self._seconds, keys, self._providers)
                finally:
                    for provider in self._providers.keys() - known:
                        await self._connections.enter_async_context(self._providers[provider])
                if len(self._models) >= MOST_MODELS:
                    del self._models[next(iter(self._models))]
                self._models[name] = model
            return self._models[name]


def _make(name: str, seconds: float, keys: Mapping[str, str], providers: dict[str, Provider[Any]]) -> LibraryModel:
    # Seconds, at first: this is what loads the library.
    from pydantic_ai.providers import infer_provider

    from runtime_service.engine.library_models import LibraryModel

    def provider(named: str) -> Provider[Any]:
        if named not in providers:
            providers[named] = infer_provider(named)
        return providers[named]

    with _in_environment(keys):
        try:
            return LibraryModel(name, provider, seconds)
        except Exception as problem:
            raise NotToBeHad(_what_is_missing(name, problem)) from problem


def _what_is_missing(name: str, problem: Exception) -> str:
    """Say in a sentence what the library, or a provider's own package, wants before it takes a name."""
    provider, said = name.partition(":")[0][:40], str(problem)
    if isinstance(problem, ImportError):
        extra = _EXTRA.search(said)
        how = f'`pip install "pydantic-ai-slim[{extra[1]}]"`' if extra else said.partition("\n")[0][:200]
        return f"The provider `{provider}` needs a package that is not installed: {how}."
    if said.startswith(("Unknown model", "Unknown provider")):
        return f"There is no provider `{provider}`. `docs/models.md` says which there are."
    if not (wanted := _VARIABLE.search(said)):
        return f"The provider `{provider}` cannot be used: {said.partition(chr(10))[0][:200]}"
    variable = wanted[0]
    if f"{variable}_FILE" in os.environ:
        return f"The provider `{provider}` needs `{variable}`, and the file of `{variable}_FILE` has none to read."
    return f"The provider `{provider}` needs `{variable}`, or `{variable}_FILE` with the name of a file that holds it."


def _key_files() -> dict[str, str]:
    """Return the files that hold keys, by the variable that each stands for."""
    return {
        variable.removesuffix("_FILE"): file
        for variable, file in os.environ.items()
        if variable.endswith(_OF_KEY_FILES) and not variable.startswith(_OURS) and file
    }


def _read_keys() -> dict[str, str]:
    keys = {}
    for variable, file in _key_files().items():
        try:
            with Path(file).open(encoding="utf-8") as opened:
                key = opened.read(MOST_KEY_BYTES).strip()
        except (OSError, UnicodeDecodeError):
            # Told where a model needs it.
            continue
        if key and "\0" not in key and variable not in os.environ:
            keys[variable] = key
    return keys


@contextmanager
def _in_environment(keys: Mapping[str, str]) -> Iterator[None]:
    """Show keys where the library looks for them, while it makes a model."""
    os.environ.update(keys)
    try:
        yield
    finally:
        for variable in keys:
            os.environ.pop(variable, None)


def _without_keys(problem: ModelProblem, keys: Mapping[str, str]) -> ModelProblem:
    """Cut keys out of what a provider said: some repeat them."""
    known: dict[str, Any] = {**os.environ, **keys}
    secrets = [value for name, value in known.items() if name.endswith(("_KEY", "_TOKEN")) and len(value) >= 8]
    problem.args = tuple(_cut(str(part), secrets) for part in problem.args)
    problem.cause = _cut(problem.cause, secrets)
    return problem


def _cut(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return text
