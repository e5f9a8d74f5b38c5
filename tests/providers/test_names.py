"""What is said of a model's name as it is given, and where keys come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tutelage import TutelageError

from runtime_service.engine.models import Asked, ModelRequest, Models
from runtime_service.engine.providers import LibraryModels
from tests.providers.conftest import gardener
from tests.providers.wire import Says, Wire
from tests.services.service import Service


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "OPENAI_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nobody:x", "There is no provider `nobody`. `docs/models.md` says which there are."),
        ("gpt-5", "A model is named `provider:name`. This service has: `scripted:…`, those of `docs/models.md`."),
        ("openai:", "A model is named `provider:name`. This service has: `scripted:…`, those of `docs/models.md`."),
        (
            "openai:gpt-5",
            "The provider `openai` needs `OPENAI_API_KEY`, "
            "or `OPENAI_API_KEY_FILE` with the name of a file that holds it.",
        ),
        (
            "anthropic:claude-sonnet-5",
            "The provider `anthropic` needs `ANTHROPIC_API_KEY`, "
            "or `ANTHROPIC_API_KEY_FILE` with the name of a file that holds it.",
        ),
        (
            "groq:llama",
            'The provider `groq` needs a package that is not installed: `pip install "pydantic-ai-slim[groq]"`.',
        ),
        ("deepseek:chat", "The provider `deepseek` needs `DEEPSEEK_API_KEY`"),
    ],
)
async def test_what_is_wrong_with_a_name_is_said_as_the_agent_is_put(service: Service, model: str, said: str) -> None:
    """An unknown provider, a package or a key that is missing, each in a sentence (C5)."""
    with pytest.raises(TutelageError) as refused:
        await gardener(service, model)

    assert refused.value.reason == "INVALID_FIELD"
    [(field, sentence)] = refused.value.fields
    assert field == "spec.hosted.model"
    assert sentence.startswith(said)


async def test_a_key_from_a_file_and_a_new_one_later(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A changed key is used from the next request on, without a restart."""
    file = tmp_path / "key"
    file.write_text("the-first-key\n")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(file))
    wire.answers += [Says(("One.",)), Says(("Two.",))]
    request = ModelRequest("openai-chat:gpt-4o", (), (Asked("Go."),))

    async with LibraryModels(seconds=10) as library:
        models = Models({}, library)
        await models.ask(request)
        file.write_text("the-second-key\n")
        await models.ask(request)

    sent = [arrived.headers["authorization"] for arrived in wire.arrived]
    assert sent == ["Bearer the-first-key", "Bearer the-second-key"]


async def test_a_variable_wins_over_a_file(wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("of-the-file")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-variable")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(file))
    wire.answers += [Says(("One.",))]

    async with LibraryModels(seconds=10) as library:
        await Models({}, library).ask(ModelRequest("openai-chat:gpt-4o", (), (Asked("Go."),)))

    assert wire.arrived[0].headers["authorization"] == "Bearer of-the-variable"


async def test_a_file_without_a_key(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "nowhere"))

    with pytest.raises(TutelageError, match="the file of `OPENAI_API_KEY_FILE` has none to read"):
        await gardener(service, "openai:gpt-5")


def test_the_service_starts_without_the_library() -> None:
    """It takes seconds to load, and is loaded once somebody names such a model."""
    seen = "import sys, runtime_service.server; print([name for name in sys.modules if 'pydantic_ai' in name])"

    ran = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, timeout=60, check=True)

    assert ran.stdout.strip() == "[]"
