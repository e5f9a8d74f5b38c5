"""Scripted models: what they answer, what they write down, and what they say of a script that is wrong."""

import asyncio
import json
import multiprocessing
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from runtime_service.engine.models import (
    Asked,
    Message,
    ModelCall,
    ModelRefused,
    ModelReply,
    ModelRequest,
    Models,
    ModelUnavailable,
    Replied,
    ShownTool,
    ToolResult,
)
from runtime_service.engine.script_rules import read_script
from runtime_service.engine.scripted import Scripts

DOCS = Path(__file__).parents[2] / "docs" / "scripted-models.md"

MERGE = ShownTool("merge", "Merges one note into another.", '{"type":"object"}')


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models({"scripted": Scripts(tmp_path)})


@pytest.fixture
def script(tmp_path: Path) -> Scripts:
    """The provider alone, which asks once: nothing is asked again."""
    return Scripts(tmp_path)


def write(folder: Path, script: str, name: str = "gardener") -> None:
    (folder / f"{name}.yaml").write_text(script, "utf-8")


def asked(*messages: Message, system: tuple[str, ...] = ("You garden.",), name: str = "gardener") -> ModelRequest:
    return ModelRequest(f"scripted:{name}", system, messages or (Asked("Tidy up."),), (MERGE,))


def lines(folder: Path, name: str = "gardener") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.requests.jsonl").read_text("utf-8").splitlines()]


async def refusal(models: Models, request: ModelRequest) -> str:
    with pytest.raises(ModelRefused) as caught:
        await models.ask(request)
    return str(caught.value)


async def test_the_first_rule_that_holds_answers(models: Models, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        - {when: 'step == 1', say: second}
        - {when: 'system.contains("garden") && messages[0].text == "Tidy up."', say: first}
        - {say: never}
        """,
    )

    first = await models.ask(asked())
    second = await models.ask(asked(Asked("Tidy up."), Replied("first")))

    assert (first.text, second.text) == ("first", "second")
    assert [line["rule"] for line in lines(tmp_path)] == [1, 0]


async def test_system_parts_are_one_text_and_messages_have_role_and_text(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- say: fine")
    request = asked(
        Asked("Tidy up."),
        Replied("I look.", (ModelCall("merge", "{}"),)),
        ToolResult(0, "merge", "merged"),
        system=("Purpose.", "Skill.", "Block."),
    )

    await models.ask(request)

    [line] = lines(tmp_path)
    assert line["system"] == "Purpose.\n\nSkill.\n\nBlock."
    assert line["messages"] == [
        {"role": "user", "text": "Tidy up."},
        {"role": "assistant", "text": "I look."},
        {"role": "tool", "text": "merged"},
    ]
    assert line["tools"] == ["merge"]
    assert line["time"].endswith("+00:00")


async def test_step_and_results_are_of_this_call_alone(models: Models, tmp_path: Path) -> None:
    """Settled 30: earlier turns of the conversation are in `messages`, and count for neither."""
    write(tmp_path, '- {when: \'step == 1 && results == ["a", "b"]\', say: right}')
    calls = (ModelCall("merge", "{}"), ModelCall("merge", "{}"))

    reply = await models.ask(
        asked(
            Asked("Before."),
            Replied("Done."),
            Asked("Now."),
            Replied("", calls),
            ToolResult(0, "merge", "a"),
            ToolResult(1, "merge", "b"),
        )
    )

    assert reply.text == "right"


async def test_an_input_keeps_the_order_of_its_keys_and_input_json_every_letter(models: Models, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        - calls:
            - {tool: merge, input: {z: 1, a: [true, null, 'né 🌿'], n: 9007199254740993}}
            - {tool: merge, input_json: '{ "a" : 1,, }'}
            - {tool: merge}
        """,
    )

    reply = await models.ask(asked())

    assert reply.text == ""
    assert [call.input_json for call in reply.calls] == [
        '{"z":1,"a":[true,null,"né 🌿"],"n":9007199254740993}',
        '{ "a" : 1,, }',
        "{}",
    ]


async def test_the_models_own_ids_are_kept_in_the_raw_form_alone(models: Models, tmp_path: Path) -> None:
    """Scenario 15: a model's own ids repeat."""
    write(tmp_path, "- calls: [{tool: merge, id: same}, {tool: merge, id: same}, {tool: merge}]")

    reply = await models.ask(asked())

    assert json.loads(reply.raw_json) == {"ids": ["same", "same", "call_3"]}
    assert reply.raw_form == "scripted/1"
    assert reply.calls[0] == reply.calls[1] == ModelCall("merge", "{}")


async def test_a_reply_costs_tokens(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- say: 'twelve chars'")

    short = await models.ask(asked())
    long = await models.ask(asked(Asked("Tidy up. " * 100)))

    assert short.output_tokens == 3
    assert 0 < short.input_tokens < long.input_tokens
    assert short.cost_micro_usd == 0


async def test_text_is_told_as_it_comes(models: Models, tmp_path: Path) -> None:
    write(tmp_path, '- say: "one\\ntwo"')
    told: list[str] = []

    reply = await models.ask(asked(), told.append)

    assert told == ["one\n", "two"]
    assert reply.text == "one\ntwo"


async def test_a_request_is_on_disk_before_its_answer_is_given(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- {say: late, delay_ms: 60000}")
    asking = asyncio.create_task(models.ask(asked()))
    log = tmp_path / "gardener.requests.jsonl"

    async with asyncio.timeout(20):
        while not (log.exists() and log.read_bytes().endswith(b"\n")):  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.005)

    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(lines(tmp_path)) == 1


async def test_a_reply_comes_no_sooner_than_its_delay(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- {say: late, delay_ms: 80}")
    begun = time.monotonic()

    await models.ask(asked())

    assert time.monotonic() - begun >= 0.08


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
async def test_a_failure_that_passes_can_be_asked_again(script: Scripts, tmp_path: Path, status: int) -> None:
    """Settled 34; what a retry needs is in the problem."""
    write(tmp_path, f"- {{say: at last, fail: {{status: {status}, retry_after: 1.5, times: 2}}}}")

    for _ in range(2):
        with pytest.raises(ModelUnavailable) as caught:
            await script.ask(asked())
        assert (caught.value.status, caught.value.retry_after) == (status, 1.5)
        assert caught.value.reason == "PART_UNAVAILABLE"
    reply = await script.ask(asked())

    assert reply.text == "at last"
    assert [line.get("failed") for line in lines(tmp_path)] == [status, status, None]


async def test_a_failure_that_does_not_pass_is_refused(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- fail: {status: 401}")

    assert "401" in await refusal(models, asked())
    assert [line["failed"] for line in lines(tmp_path)] == [401]


async def test_a_failure_without_times_fails_every_time(script: Scripts, tmp_path: Path) -> None:
    write(tmp_path, "- {say: never, fail: {status: 500}}")

    for _ in range(5):
        with pytest.raises(ModelUnavailable):
            await script.ask(asked())


async def test_a_rule_that_only_fails_is_passed_over_once_it_has(script: Scripts, tmp_path: Path) -> None:
    write(tmp_path, "- fail: {status: 500, times: 1}\n- say: next")

    with pytest.raises(ModelUnavailable):
        await script.ask(asked())

    assert (await script.ask(asked())).text == "next"


async def test_no_match_is_an_error_that_shows_what_was_asked(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- {when: 'step == 7', say: never}")

    said = await refusal(models, asked(Asked("Find the 🌿." + "x" * 100_000)))

    assert "no rule" in said
    assert "Find the 🌿." in said
    assert "You garden." in said
    assert "step 0" in said
    assert len(said) < 3000
    assert lines(tmp_path)[0]["failed"]


async def test_a_condition_that_cannot_be_evaluated_names_its_rule(models: Models, tmp_path: Path) -> None:
    """It is no match and no answer: the first rule here would else hide what is wrong."""
    write(tmp_path, "- {when: 'step == 7', say: a}\n- {when: 'results[3] == \"x\"', say: b}\n- say: c")

    assert "rule [1].when" in await refusal(models, asked())


async def test_a_condition_that_gives_no_bool_names_its_rule(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- {when: 'dyn(step)', say: a}")

    said = await refusal(models, asked())

    assert "rule [0].when" in said
    assert "no bool" in said


async def test_every_wrong_field_of_a_script_is_named_at_once(models: Models, tmp_path: Path) -> None:
    write(
        tmp_path,
        r"""
        - {when: 'stepp == 1', say: a}
        - {when: 'step', say: 5}
        - {say: a, sya: b}
        - calls: [{tol: x}, {tool: x, input: {on: 1}}, {tool: x, input: {d: 2026-01-01}}]
        - calls: [{tool: x, input: {}, input_json: '{}'}]
        - fail: {status: 200, times: 0}
        - delay_ms: -1
        - {when: 'step == 0'}
        - {say: "\ud83c"}
        - say: yes
        """,
    )

    said = await refusal(models, asked())

    for field in (
        "[0].when:",
        "undeclared reference to 'stepp'",
        "[1].when:",
        "gives int",
        "[1].say:",
        "[2].sya:",
        "[3].calls[0].tool:",
        "[3].calls[0].tol:",
        "[3].calls[1].input:",
        "[3].calls[2].input:",
        "[4].calls[0]:",
        "both `input` and `input_json`",
        "[5].fail.status:",
        "[5].fail.times:",
        "[6].delay_ms:",
        "[7]: does nothing",
        "[8].say: holds half a surrogate pair",
        "[9].say: is no text",
    ):
        assert field in said
    assert not (tmp_path / "gardener.requests.jsonl").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("", "a list of rules"),
        ("say: hello", "a list of rules"),
        ("- say: [", "no YAML"),
        ("- {say: a, say: b}", "the key say stands twice"),
        ("- !!python/object/apply:os.getcwd []", "no YAML"),
    ],
)
async def test_a_file_that_is_no_script_is_refused(models: Models, tmp_path: Path, script: str, said: str) -> None:
    write(tmp_path, script)

    assert said in await refusal(models, asked())


async def test_letters_stand_as_they_are_or_by_eight_digits(models: Models, tmp_path: Path) -> None:
    """Settled 50."""
    write(tmp_path, """- {when: 'messages[0].text == "🌿" && "\\U0001F33F" == "🌿"', say: "\\U0001F33F"}""")

    assert (await models.ask(asked(Asked("🌿")))).text == "🌿"


async def test_a_script_that_changed_is_read_again(models: Models, tmp_path: Path) -> None:
    write(tmp_path, "- say: before")
    assert (await models.ask(asked())).text == "before"

    write(tmp_path, "- say: behind")  # as long as before: the time tells
    stat = (tmp_path / "gardener.yaml").stat()
    os.utime(tmp_path / "gardener.yaml", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))

    assert (await models.ask(asked())).text == "behind"


async def test_a_script_may_be_written_after_its_name_was_taken(models: Models, tmp_path: Path) -> None:
    assert await models.check("scripted:gardener") is None
    assert "no such file" in await refusal(models, asked())

    write(tmp_path, "- say: here")

    assert (await models.ask(asked())).text == "here"


@pytest.mark.parametrize("name", ["../secret", "a/b", ".hidden", "", "a\x00b", "a" * 129, "ä"])
async def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    write(tmp_path, "- say: secret", "secret")
    models = Models({"scripted": Scripts(folder)})

    assert await models.check(f"scripted:{name}")
    await refusal(models, asked(name=name))
    assert list(folder.iterdir()) == []


async def test_a_provider_that_is_not_there_is_told_by_name(models: Models) -> None:
    assert await models.check("anthropic:x") == "There is no provider `anthropic`. This service has: `scripted:…`."
    assert await models.check("gardener") == "A model is named `provider:name`. This service has: `scripted:…`."


async def test_without_a_folder_there_are_no_scripts() -> None:
    assert "SCRIPTS_DIR" in (await Models({"scripted": Scripts(None)}).check("scripted:a") or "")


async def test_a_reply_over_a_mebibyte_is_refused(models: Models, tmp_path: Path) -> None:
    """R12: text and calls together."""
    half = "x" * 524_288
    write(tmp_path, f"- {{say: {half}, calls: [{{tool: t, input_json: {half}}}]}}", "large")
    write(tmp_path, f"- {{say: {half}, calls: [{{tool: t, input_json: {half[:-1]}}}]}}", "small")

    assert "1048576 is the most" in await refusal(models, asked(name="large"))
    assert len((await models.ask(asked(name="small"))).text) == 524_288


async def test_a_raw_form_too_large_for_its_record_is_refused() -> None:
    reply = ModelReply("", (), 1, 1, 0, raw_json="x" * 2_097_153, raw_form="other/1")

    with pytest.raises(ModelRefused, match="2097152 is the most"):
        reply.checked("other:x")


async def test_many_ask_at_once_and_each_is_one_line(script: Scripts, tmp_path: Path) -> None:
    write(tmp_path, "- {say: fine, fail: {status: 500, times: 10}}")

    replies = await asyncio.gather(*(script.ask(asked()) for _ in range(60)), return_exceptions=True)

    assert sum(isinstance(reply, ModelReply) for reply in replies) == 50
    assert sum("failed" not in line for line in lines(tmp_path)) == 50
    assert len(lines(tmp_path)) == 60


def ask_often(folder: Path, text: str) -> None:
    async def all_of_them() -> None:
        models = Models({"scripted": Scripts(folder)})
        for _ in range(40):
            await models.ask(asked(Asked(text)))

    asyncio.run(all_of_them())


def test_processes_that_share_a_script_write_whole_lines(tmp_path: Path) -> None:
    write(tmp_path, "- say: hello")
    texts = ["a" * 100_000, "b" * 100_000]
    processes = [
        multiprocessing.get_context("spawn").Process(target=ask_often, args=(tmp_path, text)) for text in texts
    ]

    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0, 0]
    found = [line["messages"][0]["text"] for line in lines(tmp_path)]
    assert sorted(found) == sorted(texts * 40)


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL))
def test_the_examples_of_the_docs_are_scripts(example: str) -> None:
    assert read_script(example)
