"""`tutelage agent`, `tools` and `conversation`: what there is to give work to, and who is asked."""

from __future__ import annotations

import json

import pytest
from tutelage.cli.exits import Exit

from tests.commands.desk import Desk
from tests.services.service import Service

SPEC = """\
name: gardener
purpose: You tend the notes. \U0001f33f
hosted:
  model: scripted:gardener
skills:
  - name: tend
    version: 2
    description: Tend a note.
  - {name: read, version: no, input_schema_json: '{"type": "object"}'}
tools:
  - tool: read_note
  - agent: helper
approve:
  rule:
    all:
    put_to: [gus, "role:supervises"]
    approvals_needed: 2
limits: {model_requests: 7}
"""


async def test_an_agent_is_put_from_yaml_and_again_from_what_was_shown(desk: Desk, service: Service) -> None:
    """What is written is taken as its field's type says: `2` and `no` are texts. The same spec: the same version."""
    service.script("gardener", {"say": "Done."})
    (desk.folder / "gardener.yaml").write_text(SPEC)

    put = await desk.told("agent", "put", "gardener.yaml", who="ana")
    (desk.folder / "gardener.json").write_text(json.dumps(put["spec"], indent="\t"))
    again = await desk.told("agent", "put", "gardener.json", who="ana")
    shown = await desk.done("agent", "show", "gardener", who="ana")
    listed = await desk.told("agent", "list", who="ana")

    assert put["spec"]["purpose"].endswith("\U0001f33f")
    assert [skill["version"] for skill in put["spec"]["skills"]] == ["2", "no"]
    assert again == put
    assert f"  version     {put['version']}\n" in shown
    assert "  tools       read_note, helper (agent)\n" in shown
    assert "  asks        all, put to gus, role:supervises, 2 approvals\n" in shown
    assert "  limits      7 model requests\n" in shown
    assert put in listed["agents"]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("name: a\nhosted:\n  modle: x\n", ["line 3, hosted.modle: there is no such field; did you mean model?"]),
        (
            "name: [a]\nlimits: {depth: deep}\nsuggests_instructions: maybe\n",
            [
                "line 1, name: here stands a list, and not one value",
                "line 2, limits.depth: it takes a whole number",
                "line 3, suggests_instructions: it takes true or false",
            ],
        ),
        (
            "program: {effects: READS}\nhosted: {model: x}\nname: a\nname: b\n",
            [
                "line 1, program.effects: it takes one of EFFECTS_UNSPECIFIED, EFFECTS_READS, EFFECTS_CHANGES",
                "line 2, hosted: it cannot stand beside program",
                "line 4, name: it stands twice",
            ],
        ),
        ("tools: read_note\n", ["line 1, tools: here stands `read_note`, and not a list"]),
        ("- name: a\n", ["line 1, the whole: here stands a list, and not fields by name"]),
        ("name: a\n  purpose: b\n", ["line 2: mapping values are not allowed here"]),
        ("", ["there is nothing in it"]),
    ],
)
async def test_everything_that_is_wrong_in_a_file_is_named_with_its_line(
    desk: Desk, written: str, named: list[str]
) -> None:
    made = await desk.runs("agent", "put", "-", who="ana", stdin=written)

    line = made.refused(Exit.USAGE)
    assert line == f"tutelage: What came on standard input cannot be taken: {'; '.join(named)}."


async def test_what_the_service_refuses_is_named_with_its_line_too(desk: Desk) -> None:
    spec = "name: two words\nhosted:\n  model: scripted:nowhere\ntools:\n  - tool: read_note\n  - tool: no tool\n"
    (desk.folder / "wrong.yaml").write_text(spec)

    line = (await desk.runs("agent", "put", "wrong.yaml", who="ana")).refused()

    assert line.startswith("tutelage: wrong.yaml cannot be taken: line 1, name: ")
    assert "; line 6, tools[1].tool: " in line


async def test_a_file_that_cannot_be_read_is_one_line(desk: Desk) -> None:
    (desk.folder / "latin.yaml").write_bytes(b"purpose: caf\xe9\n")

    latin, missing = [await desk.runs("agent", "put", name) for name in ("latin.yaml", "nowhere.yaml")]

    assert latin.refused(Exit.USAGE) == "tutelage: latin.yaml is no text in UTF-8."
    assert missing.refused(Exit.USAGE) == "tutelage: nowhere.yaml cannot be read: No such file or directory."


async def test_who_may_not_register_agents_is_told_which_role_does(desk: Desk) -> None:
    made = await desk.runs("agent", "put", "-", stdin="name: a\nhosted: {model: scripted:a}\n")

    assert "`builds`" in made.refused()


async def test_tools_are_listed_with_what_they_do_to_the_world(desk: Desk) -> None:
    """A tool that declares nothing counts as one that changes things (A1)."""
    said = await desk.done("tools")
    told = await desk.told("tools")

    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines()[2:]}
    assert rows["read_note"].startswith("READS ")
    assert rows["write_note"].startswith("CHANGES Replace")
    assert rows["poke"].startswith("CHANGES (not declared) ")
    effects = {tool["name"]: tool["effects"] for tool in told["tools"]}
    assert effects["poke"] == "EFFECTS_UNSPECIFIED"


async def test_an_id_is_whole_however_narrow_the_terminal(desk: Desk, service: Service) -> None:
    """Framed for a terminal; elsewhere a row is a line, with no colours and no frame."""
    version = (await service.agent("narrow", {"say": "Hello."})).version

    framed = await desk.runs("agent", "list", TTY_COMPATIBLE="1", COLUMNS="40")
    plain = await desk.runs("agent", "list", COLUMNS="40")

    assert version in framed.out
    assert "\u2502" in framed.out
    [row] = [line for line in plain.out.splitlines() if line.startswith("narrow ")]
    assert version in row
    assert not {"\x1b", "\u2502"} & set(plain.out)


async def test_who_is_asked_in_a_conversation_is_set_and_shown(desk: Desk, service: Service) -> None:
    """By a word, by a file, and back to the agent's own setting (A4)."""
    await service.agent("host-of-one", {"say": "Hello."})
    (desk.folder / "two.yaml").write_text("rule:\n  names: {names: [refund]}\n  approvals_needed: 2\n")

    opened = await desk.done("conversation", "open", "host-of-one", "--id", "gus-1", "--approve", "all")
    await desk.done("turn", "start", "host-of-one", "Go.", "--conversation", "gus-1", "--wait")
    by_file = await desk.done("conversation", "approve", "gus-1", "@two.yaml")
    back = await desk.told("conversation", "approve", "gus-1", "agent")
    shown = await desk.done("conversation", "show", "gus-1")
    listed = await desk.told("conversation", "list", "--agent", "host-of-one")

    assert "conversation  gus-1\n" in opened
    assert "  asks        all\n" in opened
    assert "  asks        names refund, 2 approvals\n" in by_file
    assert "approve" not in back
    assert "  turns       1\n" in shown
    assert "  DONE   host-of-one  gus" in shown
    assert [one["id"] for one in listed["conversations"]] == ["gus-1"]
