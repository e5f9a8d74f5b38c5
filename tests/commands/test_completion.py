"""What the shell completes: commands and options from the command line itself, names from the service."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.client.commands import clean
from tests.client.runtime_double import WAIT_SECONDS
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


async def bash(desk: Desk, script: str) -> str:
    """Run a script in bash, where `tutelage` is found, signed in."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash", "--norc", "-c", script,
        cwd=desk.folder, env={**clean(), **desk.settings("gus"), "PATH": path},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(4 * WAIT_SECONDS):
        out, err = await process.communicate()
    assert err == b"", err
    return out.decode()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_bash_completes_commands_and_the_names_that_there_are(desk: Desk, service: Service) -> None:
    """Where nobody is signed in nothing is said: at a prompt no error helps."""
    for name in ("completed-1", "completed-2"):
        await service.agent(name, {"say": "Hello."})

    commands, agents, nobody = (await bash(desk, COMPLETE)).splitlines()

    assert sorted(commands.split()) == ["wait", "watch"]
    assert agents.split() == ["completed-1", "completed-2"]
    assert nobody == ""
