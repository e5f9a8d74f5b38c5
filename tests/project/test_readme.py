"""What README.md tells a newcomer is so: the commands, and the first ten minutes as they are told."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tutelage.cli.main import app
from typer.main import get_command

from tests.project.tree import BIN, ROOT

README = (ROOT / "README.md").read_text()
HELLO = ROOT / "clients" / "python" / "examples" / "hello"
SECONDS = 60.0
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


def test_its_make_commands_are_targets() -> None:
    """Also those of CONTRIBUTING.md and of CI."""
    told = README + (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / ".ci" / "run").read_text()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|step )make (\w+)", told, re.MULTILINE))
    assert {"run", "test", "check", "env"} <= named
    assert named <= targets


def test_its_commands_are_those_of_the_command_line() -> None:
    commands = [line for line in SHELL if re.match(r"(export \w+=\$\()?tutelage ", line)]
    assert len(commands) >= 6
    for line in commands:
        words = shlex.split(line.partition("$(")[2].rstrip(")") or line, comments=True)[1:]
        command = get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_it_shows_the_example_as_it_is() -> None:
    assert f"```python\n{(HELLO / 'hello.py').read_text()}```" in README


class Newcomer:
    """Somebody who does what the README says, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTELAGE_")}
        self.settings = {**clean, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}

    def export(self, name: str) -> None:
        """Sign in by the README's own line that names somebody."""
        line = next(line for line in SHELL if f"--sub {name} " in line)
        made = self.runs(*shlex.split(line.partition("$(")[2].rstrip(")")))
        self.settings["TUTELAGE_TOKEN"] = made.strip()

    def runs(self, *command: str) -> str:
        """Run a command to a good end, and return what it printed."""
        done = self.tries(*command)
        assert done.returncode == 0, done
        return done.stdout

    def tries(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command, cwd=self.folder, env=self.settings, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def follows(self, command: str, **names: str) -> str:
        """Run the README's own line that begins so, with its capital words replaced by these."""
        line = next(line for line in SHELL if line.startswith(f"tutelage {command} "))
        words = shlex.split(line, comments=True)
        return self.runs(*(re.sub(r"^[A-Z]+\b", lambda word: names.get(word[0], word[0]), word) for word in words))

    @contextmanager
    def starts(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command that stays; it is stopped as Ctrl-C does."""
        with (self.folder / "stderr").open("a") as errors:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.settings, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)

    @contextmanager
    def works(self) -> Iterator[subprocess.Popen[str]]:
        """`hello.py`, under its own account."""
        self.export("hello")
        with self.starts(sys.executable, str(HELLO / "hello.py")) as process:
            yield process

    @contextmanager
    def up(self, listen: str) -> Iterator[str]:
        """`tutelage up`; yields where the runtime serves."""
        with self.starts("tutelage", "up", "--listen", listen, "--teaching-listen", "127.0.0.1:0") as process:
            address = re.search(r"TUTELAGE_TO_RUNTIME=(\S+)", heard(process, "TUTELAGE_TO_RUNTIME="))
            assert address is not None
            yield address[1]


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Read what a process prints until it has printed this. The test's own time-out bounds it."""
    assert process.stdout is not None
    said = ""
    while words not in said:
        line = process.stdout.readline()
        assert line, f"it ended without {words!r}: {said}"
        said += line
    return said


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    shutil.copy(HELLO / "hello.yaml", tmp_path)
    made = Newcomer(tmp_path)
    made.settings["TUTELAGE_RUNTIME_SCRIPTS_DIR"] = str(tmp_path)
    return made


def asks(newcomer: Newcomer, hello: subprocess.Popen[str], greeting: str = "Hello, world.") -> tuple[str, str]:
    """Wait until the agent asks to write this, and return the turn, where it was just begun, and the approval."""
    turn = re.search(r"turn (\w+)", heard(hello, "approval_asked"))
    assert not (newcomer.folder / "greeting.txt").exists()
    newcomer.export("you")
    listed = newcomer.runs("tutelage", "approvals", "list")
    assert f'text: "{greeting}"' in listed
    return turn[1] if turn else "", named("write_greeting", listed)


def named(what: str, printed: str) -> str:
    """Return the id of what was printed."""
    found = re.match(rf"{what}  (\w+)\n", printed)
    assert found is not None, printed
    return found[1]


def test_the_first_ten_minutes(newcomer: Newcomer) -> None:
    """Up, sign in, host a tool, give work, answer, look: as told, with another port (A1, A8)."""
    with newcomer.up("127.0.0.1:0") as address:
        newcomer.settings["TUTELAGE_TO_RUNTIME"] = address
        with newcomer.works() as hello:
            turn, approval = asks(newcomer, hello)
            approved = newcomer.runs("tutelage", "approvals", "approve", approval, "--yes")
            heard(hello, "turn_ended: DONE The greeting is written.")
            assert hello.wait(SECONDS) == 0
        shown = newcomer.runs("tutelage", "turn", "show", turn)
    assert "APPROVED  write_greeting" in approved
    assert (newcomer.folder / "greeting.txt").read_text() == "Hello, world.\n"
    assert "APPROVED by you" in shown


def test_the_agent_is_taught_as_told(newcomer: Newcomer) -> None:
    """Corrected, told, taken back while it asks, explained: by the README's own lines (B1, B3, B6, B10, B12, B13)."""
    with newcomer.up("127.0.0.1:0") as address:
        newcomer.settings["TUTELAGE_TO_RUNTIME"] = address
        with newcomer.works() as hello:
            turn, approval = asks(newcomer, hello)
            newcomer.follows("approvals deny", ID=approval)
            heard(hello, "turn_ended")
        correction = named("correction", newcomer.follows("teach correct", TURN=turn))
        instruction = named("instruction", newcomer.follows("teach propose", CORRECTION=correction))
        activated = newcomer.runs("tutelage", "teach", "activate", instruction, "--yes")
        assert "Greet in Latin." in activated
        assert f"set 1 of hello  ACTIVATED {instruction}  1 active" in activated
        assert "Greet in Latin." in newcomer.follows("teach show")
        explained = newcomer.follows("teach explain", TURN=turn)
        with newcomer.works() as hello:
            _, approval = asks(newcomer, hello, "Salve, munde.")
            restored = newcomer.follows("teach rollback")
            refused = newcomer.tries("tutelage", "approvals", "approve", approval, "--yes")
            _, again = asks(newcomer, hello, "Hello, world.")
            newcomer.runs("tutelage", "approvals", "approve", again, "--yes")
            heard(hello, "turn_ended: DONE The greeting is written.")
    assert restored.startswith("set 2 of hello  ROLLED_BACK to set 0  0 active")
    assert refused.returncode == 1
    assert "instructions changed" in refused.stderr
    assert again != approval
    assert (newcomer.folder / "greeting.txt").read_text() == "Hello, world.\n"
    assert explained.startswith("It ran before anybody had taught hello anything. Since then 1 has been made active ")


def test_the_example_says_in_a_line_why_it_was_refused(newcomer: Newcomer) -> None:
    """Nobody in their first ten minutes reads a traceback."""
    newcomer.settings |= {"TUTELAGE_TO_RUNTIME": "127.0.0.1:1", "TUTELAGE_TOKEN": "none"}
    refused = newcomer.tries(sys.executable, str(HELLO / "hello.py"))
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.startswith("failed to connect")
    assert refused.stderr.count("\n") == 1


def test_a_no_after_the_runtime_was_stopped(newcomer: Newcomer) -> None:
    """The tour's last steps: it is stopped while it asks, started again, and told no (A7, A8)."""
    with newcomer.up("127.0.0.1:0") as address:
        newcomer.settings["TUTELAGE_TO_RUNTIME"] = address
        hello = newcomer.works()
        process = hello.__enter__()
        _, approval = asks(newcomer, process)
    try:
        with newcomer.up(address):
            newcomer.runs("tutelage", "approvals", "deny", approval, "--reason", "Not today.")
            heard(process, "turn_ended: DONE I wrote nothing. You did not allow it.")
            assert process.wait(SECONDS) == 0
    finally:
        hello.__exit__(None, None, None)
    assert not (newcomer.folder / "greeting.txt").exists()
    replies = (newcomer.folder / "hello.requests.jsonl").read_text().splitlines()
    assert len(replies) == 2
