"""Generates the Python stubs from the contract, or checks that those in the tree are up to date.

The stubs lie under the `tutelage` package, since generated imports follow the proto package.
"""

from __future__ import annotations

import filecmp
import os
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).parent
STUBS = PROTOS.parent / "clients" / "python"


def generate(into: Path) -> list[Path]:
    """Write the stubs below `into`; return their paths relative to it."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = [f"-I{PROTOS}", f"-I{well_known}"]
    # protoc finds the mypy plugins on the path: those of this environment.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = [f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    if protoc.main(["protoc", *arguments, *outputs, *sources]) != 0:
        sys.exit("protoc failed")
    return sorted(path.relative_to(into) for path in into.rglob("*_pb2*.py*"))


def check() -> None:
    """Exit with the names of the stubs that differ from what the contract gives."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        expected = generate(fresh)
        present = sorted(
            path.relative_to(STUBS) for path in STUBS.rglob("*_pb2*.py*") if "__pycache__" not in path.parts
        )
        stale = [
            path
            for path in expected
            if not (STUBS / path).exists() or not filecmp.cmp(fresh / path, STUBS / path, shallow=False)
        ]
        stale += [path for path in present if path not in expected]
    if stale:
        sys.exit("stubs are not up to date, run `make generate`: " + ", ".join(map(str, stale)))


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        check()
    else:
        generate(STUBS)
