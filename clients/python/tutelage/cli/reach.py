"""How a command finds a service, and under which account it speaks to it.

By `TUTELAGE_TO_RUNTIME`, `TUTELAGE_TO_TEACHING` and `TUTELAGE_TOKEN`, or by what `tutelage up` left in the data
folder. A data folder has the key that could sign anybody in, but a command makes no person of its own: it says how to.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError
from tutelage.client import Teaching, Tutelage, connect, connect_teaching
from tutelage.service_process import NAMES, Service
from tutelage.token import KEY_FILE

UP_FILE = "up.json"
DEFAULT_DATA_DIR = Path("tutelage-data")

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="TUTELAGE_DATA_DIR", help="The folder that `tutelage up` uses.")
]


def reach(data_dir: Path) -> Tutelage:
    """Connect to the runtime. Raises CommandError where it is not known where it is, or who calls."""
    return connect(_address("runtime", data_dir), _token(data_dir))


def reach_teaching(data_dir: Path) -> Teaching:
    """Connect to the teaching service, as `reach` does to the runtime."""
    return connect_teaching(_address("teaching", data_dir), _token(data_dir))


def token_command(data_dir: Path) -> str:
    """Say how to sign a person in who may give work, decide and teach."""
    folder = "" if data_dir == DEFAULT_DATA_DIR else f" --data-dir {shlex.quote(str(data_dir))}"
    return f"tutelage token --sub YOU --kind person --role uses --role supervises --role teaches{folder}"


def _address(service: Service, data_dir: Path) -> str:
    setting = f"TUTELAGE_TO_{service.upper()}"
    if address := os.environ.get(setting):
        return address
    path = data_dir / UP_FILE
    try:
        return str(json.loads(path.read_text())[service])
    except (FileNotFoundError, NotADirectoryError):
        raise CommandError(
            f"No {NAMES[service]} is known in {data_dir}. Start one with `tutelage up`, or set {setting}.",
            Exit.UNREACHABLE,
        ) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{path} cannot be read. Start `tutelage up` again.", Exit.UNREACHABLE) from None


def _token(data_dir: Path) -> str:
    if token := os.environ.get("TUTELAGE_TOKEN"):
        return token
    if (data_dir / KEY_FILE).exists():
        raise CommandError(f"Nobody is signed in. Run: export TUTELAGE_TOKEN=$({token_command(data_dir)})")
    raise CommandError("Nobody is signed in. Set TUTELAGE_TOKEN to a token of the service.")
