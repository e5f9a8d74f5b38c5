"""Service and host processes that begin at once: one process imports everything, and forks whatever is asked for.

    python -m tests.recovery.forks        (by `Forks.start`)

A service's imports take two seconds, a fork of a process that has them fifty milliseconds: so a service can be killed
some hundreds of times in a test. Each is a process of its own, whose settings come from its environment and whose
output goes to a file, as under `python -m`. All that still run end with the process that forked them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

PARTS = ("runtime", "teaching", "host")


class Process:
    """A process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._over = asyncio.Event()
        # A descriptor that stands for this very process, whoever gets its number later.
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._descriptor = -1
            self._over.set()
            return
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    @property
    def stopped(self) -> bool:
        """Whether it stands still (SIGSTOP)."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, where it has not ended."""
        if not self.over:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def ended(self) -> None:
        """Wait for its end."""
        await self._over.wait()

    async def kill(self) -> None:
        """End it as a crash would, and wait for that."""
        self.signal(signal.SIGKILL)
        await self.ended()

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._over.set()


class Forks:
    """What forks: made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    @classmethod
    async def start(cls) -> Self:
        """Start it. It is ready once it answers."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, stdin=pipe, stdout=pipe)
        return cls(process)

    async def fork(self, part: str, log: Path, settings: Mapping[str, str]) -> Process:
        """Fork a part with these settings in its environment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._asking:
            line = json.dumps({"part": part, "log": str(log), "settings": dict(settings)})
            self._process.stdin.write(line.encode() + b"\n")
            answer = await self._process.stdout.readline()
        return Process(int(answer))

    async def stop(self) -> None:
        """End it, and all that it forked and that still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# The process that forks


def _main() -> None:
    run = _parts()
    # Nobody waits for its children: the system forgets them as they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children: list[int] = []
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _begin(asked, run[asked["part"]], children)
        children.append(os.pidfd_open(pid))
        os.write(1, f"{pid}\n".encode())
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)


def _begin(asked: Mapping[str, Any], run: Callable[[], object], siblings: list[int]) -> None:
    """Become what was asked for. Never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for sibling in siblings:
            os.close(sibling)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for standard in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if standard == 0 else log, standard)
        os.environ.update(asked["settings"])
        sys.argv = [asked["part"]]
        run()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _parts() -> Mapping[str, Callable[[], object]]:
    """Import all that there is to run."""
    from runtime_service.server import running as runtime_running
    from runtime_service.settings import Settings as RuntimeSettings
    from runtime_service.store.checking import check as runtime_check
    from runtime_service.store.migrations import migrate as runtime_migrate
    from service_kit import command
    from teaching_service.server import running as teaching_running
    from teaching_service.settings import Settings as TeachingSettings
    from teaching_service.store.checking import check as teaching_check
    from teaching_service.store.migrations import migrate as teaching_migrate
    from tests.recovery import effects_host, tracer

    def runtime() -> object:
        tracer.trace_runtime()
        return command.run("runtime", "", RuntimeSettings, runtime_migrate, runtime_check, runtime_running)

    def teaching() -> object:
        return command.run("teaching", "", TeachingSettings, teaching_migrate, teaching_check, teaching_running)

    def host() -> object:
        crossed = tracer.trace_host().cross
        return asyncio.run(effects_host.main(Path(os.environ["HOST_FOLDER"]), crossed))

    return dict(zip(PARTS, (runtime, teaching, host), strict=True))


if __name__ == "__main__":
    _main()
