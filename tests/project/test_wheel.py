"""The wheel is whole: what is built runs where nothing of this tree is."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.project.tree import ROOT, files, ran

PACKAGES = {
    path.name: path
    for path in (
        ROOT / "runtime_service",
        ROOT / "teaching_service",
        ROOT / "service_kit",
        ROOT / "clients/python/tutelage",
    )
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = ran(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it into an environment of its own; what it depends on is taken from this one, and no more."""
    place = tmp_path_factory.mktemp("installed")
    made = ran(sys.executable, "-m", "venv", "--without-pip", place)
    assert made.returncode == 0, made.stderr
    python = place / "bin" / "python"
    put = ran(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    assert put.returncode == 0, put.stderr
    # A line of a .pth file adds a folder, and not what that folder's own .pth files would add: not this tree.
    lib = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (lib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def test_it_has_every_file_of_its_packages(wheel: Path) -> None:
    """Stubs, migrations and the marks of typed packages among them; and nothing else."""
    wanted = {f"{name}/{path.relative_to(folder)}" for name, folder in PACKAGES.items() for path in files(below=folder)}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert {f"{name}/py.typed" for name in PACKAGES} <= held


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "runtime_service", "--help"),
        ("python", "-m", "teaching_service", "--help"),
        ("tutelage", "--help"),
        ("tutelage", "approvals", "--help"),
    ],
    ids=" ".join,
)
def test_what_it_installs_says_what_it_does(installed: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    done = run(installed, command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout.lower()


def test_what_it_installs_makes_its_database(installed: Path, tmp_path: Path) -> None:
    """The migrations are in it, and they are its own."""
    done = run(installed, ("python", "-m", "runtime_service", "migrate"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tutelage-data" / "runtime.db").stat().st_size > 0
    found = run(installed, ("python", "-c", "import runtime_service; print(runtime_service.__file__)"), tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(installed)


def run(installed: Path, command: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    return subprocess.run(
        [str(installed / "bin" / program), *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
