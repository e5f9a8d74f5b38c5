"""The command line is as it says: every command has its examples, which it takes, and its form for programs."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from docs import commands

COMMANDS = dict(commands.commands())
# What they print is for a shell or for eyes alone.
WITHOUT_JSON = {"tutelage up", "tutelage token"}
REDIRECTIONS = ("<", ">")


@pytest.mark.parametrize("name", COMMANDS)
def test_it_takes_its_own_examples(name: str) -> None:
    """Parsed as they stand, and not run."""
    command: Any = COMMANDS[name]
    examples = commands.examples(command)
    assert examples
    for example in examples:
        words = shlex.split(example)
        for sign in REDIRECTIONS:
            words = words[: words.index(sign)] if sign in words else words
        assert " ".join(words).startswith(name)
        command.make_context(name, words[len(name.split()) :])


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_JSON])
def test_it_speaks_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)
