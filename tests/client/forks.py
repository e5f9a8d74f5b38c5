"""Runs the command line in processes forked from one that has imported it: a second saved at every command.

As a program it reads a request a line: arguments, folder, environment, and the files to read from and write to. It
forks, runs the command there as its entry point does, and answers with the exit code. It ends with its standard input.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

FILES = ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY | os.O_CREAT), (2, "stderr", os.O_WRONLY | os.O_CREAT))


class Forks:
    """The process that is forked. It is started with the first command, and ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: Mapping[str, Any]) -> int:
        """Run a command to its end, and return its exit code. Blocks."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            atexit.register(self._process.communicate)
        return self._process


def serve() -> None:
    """Fork for each request until there are no more."""
    from tutelage.cli.main import main

    # What a command loads as it runs is there too before the first fork.
    with suppress(SystemExit), redirect_stderr(io.StringIO()):
        main(["turn", "show"])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def become(request: dict[str, Any]) -> None:
    """Be the command that was asked for, for a bounded time, and end as it ends."""
    from tutelage.cli.main import main

    signal.alarm(request["seconds"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["settings"])
    for number, name, how in FILES:
        os.dup2(os.open(Path(request[name]), how, 0o600), number)
    sys.stdin = os.fdopen(0, closefd=False)
    code = 1
    try:
        main(request["arguments"])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
