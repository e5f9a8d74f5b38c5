"""Checks that the pinned requirements are what pyproject.toml asks for. Needs no package index.

What is asked for, with all that it needs, is followed through the packages of this environment. So what only another
system needs is taken at its word.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

HERE = Path(__file__).parent


def pinned(text: str) -> tuple[dict[NormalizedName, Requirement], list[str]]:
    """Read a requirements file: what it pins, by name, and what is wrong with how."""
    pins: dict[NormalizedName, Requirement] = {}
    wrong: list[str] = []
    for entry in text.replace("\\\n", " ").splitlines():
        said, *hashes = entry.split("--hash=")
        if said.lstrip().startswith("-") or "://" in said:
            wrong.append(f"`{said.strip()}` says where packages come from; that is for whoever installs")
        elif said.strip():
            requirement = Requirement(said)
            pins[canonicalize_name(requirement.name)] = requirement
            if not re.fullmatch(r"==[^*,]+", str(requirement.specifier)):
                wrong.append(f"{requirement.name} is not pinned")
            if not hashes:
                wrong.append(f"{requirement.name} has no hash")
    return pins, wrong


def needed(asked: Iterable[Requirement]) -> Iterator[Requirement]:
    """Yield what is asked for here, with all that it needs."""
    waiting = [(requirement, "") for requirement in asked]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        yield requirement
        for part in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), part)
            if key not in seen:
                seen.add(key)
                needs = distribution(requirement.name).requires or []
                waiting += [(Requirement(need), part) for need in needs]


def differences(asked: Iterable[Requirement], text: str) -> list[str]:
    """Say how a requirements file differs from what is asked for."""
    pins, wrong = pinned(text)
    names = set()
    for requirement in needed(asked):
        name = canonicalize_name(requirement.name)
        names.add(name)
        version = str(pins[name].specifier).removeprefix("==") if name in pins else ""
        if not version:
            wrong.append(f"{name} is needed and not pinned")
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{name} is pinned at {version}, and {requirement} is needed")
    here = {name for name, pin in pins.items() if not pin.marker or pin.marker.evaluate()}
    wrong += [f"{name} is pinned and not needed" for name in sorted(here - names)]
    return wrong


def check(project: Mapping[str, Mapping[str, object]], folder: Path = HERE) -> list[str]:
    """Say how the requirements in a folder differ from a project's tables."""
    runtime = [Requirement(str(each)) for each in _listed(project["project"]["dependencies"])]
    dev = runtime + [Requirement(str(each)) for each in _listed(project["dependency-groups"]["dev"])]
    return [
        f"requirements/{name}: {each}"
        for name, asked in (("runtime.txt", runtime), ("dev.txt", dev))
        for each in differences(asked, (folder / name).read_text())
    ]


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


if __name__ == "__main__":
    found = check(tomllib.loads((HERE.parent / "pyproject.toml").read_text()))
    if found:
        sys.exit("\n".join([*found, "Run `make lock`."]))
