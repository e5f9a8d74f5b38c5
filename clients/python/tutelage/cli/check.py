"""`tutelage check`: hold all that both services keep to the rules that they promise to keep.

Each service looks at its own database, by its own `check` command, as `tutelage up` would start it on the data folder.
It may run beside them, and changes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir
from tutelage.service_process import NAMES, Service

SERVICES: tuple[Service, ...] = ("runtime", "teaching")


def check(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, by service.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Say what of all that both services keep does not hold. It changes nothing, and may run beside them."""
    if as_json:
        found = {service: _found(service, data_dir) for service in SERVICES}
        typer.echo(json.dumps(found, ensure_ascii=False))
        held = all(one["holds"] for one in found.values())
    else:
        # Both are looked at, whatever the first one has.
        ends = {service: _said(service, data_dir) for service in SERVICES}
        held = all(ends.values())
    raise SystemExit(Exit.DONE if held else Exit.REFUSED)


def _found(service: Service, data_dir: Path) -> dict[str, Any]:
    """Return what a service found. Raises CommandError where it could not look."""
    ran = _run(service, data_dir, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not ran.stdout:
        last = (ran.stderr.strip() or "it said nothing").splitlines()[-1]
        raise CommandError(f"The {NAMES[service]} cannot be checked: {last}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _said(service: Service, data_dir: Path) -> bool:
    """Have a service say what it finds, as it finds it; return whether all of it holds."""
    typer.echo(f"What the {NAMES[service]} keeps:")
    sys.stdout.flush()
    return _run(service, data_dir).returncode == 0


def _run(service: Service, data_dir: Path, *arguments: str, **streams: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"{service}_service", "check", *arguments]
    own = {f"TUTELAGE_{service.upper()}_DATA_DIR": str(data_dir.absolute())}
    return subprocess.run(command, env={**os.environ, **own}, text=True, check=False, **streams)  # type: ignore[call-overload, no-any-return]  # noqa: S603 — our own
