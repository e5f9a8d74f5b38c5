"""What the shell completes: commands and options from the command line itself, names from the service."""

from __future__ import annotations

import shutil

import pytest

from tests.commands.desk import Desk
from tests.services.service import Service

# The function is what a Tab calls, with the command's name; the words are what stands on the line.
COMPLETE = """\
eval "$(tutelage --show-completion)"
complete_words() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _tutelage_completion tutelage
    echo "${COMPREPLY[@]}"
}
complete_words tutelage turn w
complete_words tutelage turn start completed-
unset TUTELAGE_TOKEN
complete_words tutelage turn start completed-
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_bash_completes_commands_and_the_names_that_there_are(desk: Desk, service: Service) -> None:
    """Where nobody is signed in nothing is said: at a prompt no error helps."""
    for name in ("completed-1", "completed-2"):
        await service.agent(name, {"say": "Hello."})

    commands, agents, nobody = (await desk.bash(COMPLETE)).out.splitlines()

    assert sorted(commands.split()) == ["wait", "watch"]
    assert agents.split() == ["completed-1", "completed-2"]
    assert nobody == ""
