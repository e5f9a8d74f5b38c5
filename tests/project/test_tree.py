"""What is generated is up to date, what is pinned is what is asked for, and nothing names where it was made."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.project.tree import BIN, ROOT, files, ran

RULES = ROOT / "docs" / "rules"
CODE = (".py", ".proto", ".md", ".yaml")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([BIN / "buf", "lint"], id="the contract is clean"),
        pytest.param(
            [BIN / "buf", "breaking", "--against", "protos/released.binpb"], id="the contract breaks nothing released"
        ),
        pytest.param([sys.executable, "protos/generate.py", "--check"], id="the stubs are those of the contract"),
        pytest.param([sys.executable, "docs/generate.py", "--check"], id="the tables in docs are those of the code"),
        pytest.param([sys.executable, "requirements/check.py"], id="what is pinned is what is asked for"),
    ],
)
def test_what_is_checked_holds(command: list[str | Path]) -> None:
    """`make check` runs the same commands."""
    checked = ran(*command)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_contract_that_breaks_what_was_released_is_found(tmp_path: Path) -> None:
    """A field that is gone is what `buf breaking` is there for."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    agents = tmp_path / "protos" / "tutelage" / "runtime" / "v1" / "agents.proto"
    kept = re.sub(r" *// .*\n  string purpose = 2;\n", "", agents.read_text())
    assert kept != agents.read_text()
    agents.write_text(kept)
    against = ROOT / "protos" / "released.binpb"
    broken = ran(BIN / "buf", "breaking", tmp_path, "--against", against)
    assert "purpose" in broken.stdout
    assert broken.returncode != 0


def test_a_table_that_is_out_of_date_is_found() -> None:
    """A page keeps what is written by hand, and its table is written anew."""
    generate = module(ROOT / "docs" / "generate.py")
    page = "Before.\n<!-- table: settings -->\n| old |\n<!-- end -->\nAfter.\n"
    written = generate.written(page)
    assert written.startswith("Before.\n<!-- table: settings -->\n\n| variable |")
    assert written.endswith("\n<!-- end -->\nAfter.\n")
    assert "| old |" not in written


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("grpcio==", "grpcio>="), "grpcio is not pinned"),
        (("grpcio==", "grpcio==0."), "grpcio is pinned at 0."),
        (("alembic==", "not-asked-for==1.0 --hash=sha256:00\nalembic=="), "not-asked-for is pinned and not needed"),
        (("alembic==", "--index-url x\nalembic=="), "says where packages come from"),
    ],
)
def test_requirements_that_are_out_of_step_are_found(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    check = module(ROOT / "requirements" / "check.py")
    for name in ("runtime.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text()
        (tmp_path / name).write_text(re.sub(rf"^{re.escape(change[0])}", change[1], text, count=1, flags=re.MULTILINE))
    found = check.check(tomllib.loads((ROOT / "pyproject.toml").read_text()), tmp_path)
    assert any(told in each for each in found), found


def test_nothing_names_a_package_index_or_a_machine() -> None:
    """Where packages come from, and where this was made, is nobody's affair who reads it."""
    hosts = ["pypi" + ".org", "python" + "hosted", "npm" + "js.", "proxy.golang" + ".org", "maven" + ".org"]
    folders = [f"/{name}/" for name in ("work", "root", "home", "Users")]
    named = re.compile("|".join(re.escape(each) for each in hosts) + r"|(?<![\w.\])}*-])(?:" + "|".join(folders) + ")")
    found = []
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {each[0]}" for each in named.finditer(text)]
    assert found == []


def test_every_rule_that_is_named_is_there() -> None:
    """Who reads `R6.2` or `settled 16` finds it in docs/rules."""
    rules = numbered(RULES / "runtime.md", "R") | numbered(RULES / "teaching.md", "T")
    rules |= {f"settled {each}" for each in re.findall(r"^(\d+)\. ", (RULES / "settled.md").read_text(), re.MULTILINE)}
    unknown = {
        f"{path.relative_to(ROOT)}: {named}"
        for path in files(*CODE)
        if RULES not in path.parents and not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        for named in re.findall(r"\b(?:[RT]\d\d?(?:\.\d+)?|settled \d+)\b", path.read_text())
        if named not in rules
    }
    assert unknown == set()


def numbered(path: Path, letter: str) -> set[str]:
    """Return the rules of a page: `R6`, and `R6.2` for each that is numbered below it."""
    rules, section = set(), ""
    for line in path.read_text().splitlines():
        if heading := re.match(rf"## ({letter}\d+) ", line):
            section = heading[1]
            rules.add(section)
        elif section and (number := re.match(r"(\d+)\. ", line)):
            rules.add(f"{section}.{number[1]}")
    return rules


def test_every_link_leads_somewhere() -> None:
    """A page that is linked is there, and so is the heading."""
    dead = []
    for page in files(".md"):
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            there = (page.parent / target).resolve() if target else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                dead.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert dead == []


def test_every_page_is_found_from_the_readme() -> None:
    """Who follows links from README.md comes to every page of docs."""
    found, to_see = set(), [ROOT / "README.md"]
    while to_see:
        page = to_see.pop()
        if page not in found:
            found.add(page)
            targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text())
            to_see += [(page.parent / target).resolve() for target in targets]
    assert set(files(".md", below=ROOT / "docs")) - found == set()


def test_every_folder_of_tests_is_told_of() -> None:
    """CONTRIBUTING.md says what each shows, and names none that is not there."""
    told = set(re.findall(r"`tests/(\w+)/`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert told == {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def module(path: Path) -> ModuleType:
    """Load a script of the tree as a module."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
