"""The pages of docs/cli.md, made from the command line itself: its docstrings, options and examples."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from tutelage.cli import exits
from tutelage.cli.exits import MEANINGS, Exit
from tutelage.cli.main import app
from typer.main import get_command

WIDTH = 100
Rows = Sequence[tuple[str, str]]


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command by its whole name, in the order of its help."""
    yield from _below("tutelage", get_command(app))


def examples(command: Any) -> list[str]:
    """Return a command's examples."""
    return command.epilog.split("\n\n") if command.epilog else []


def pages() -> str:
    """Every command as a page of a manual."""
    return "\n".join(f"### {name}\n\n```\n{_page(name, command)}```\n" for name, command in commands())


def index() -> Rows:
    """Every command in a line."""
    return [(f"[`{name}`](#{name.replace(' ', '-')})", _short(command)) for name, command in commands()]


def exit_codes() -> Rows:
    """Every exit code, with what it means."""
    return [(f"{code}", MEANINGS[code]) for code in Exit]


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each, below in command.commands.items():
        yield from _below(f"{name} {each}", below)


def _page(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    parts = (
        ("NAME", f"{name} - {_short(command)}\n"),
        ("SYNOPSIS", _synopsis(name, arguments, options)),
        ("DESCRIPTION", _wrapped(_more(command))),
        ("ARGUMENTS", "".join(_described(_shape(each), each) for each in arguments)),
        ("OPTIONS", "".join(_described(_shape(each), each) for each in options)),
        ("EXIT STATUS", f"{', '.join(str(int(code)) for code in _exits(name, command, options))}\n"),
        ("ENVIRONMENT", _wrapped(", ".join(_environment(command, options)))),
        ("EXAMPLES", "".join(f"{line}\n" for line in examples(command))),
    )
    return "\n".join(f"{head}\n{textwrap.indent(text, '    ')}" for head, text in parts if text.strip())


def _short(command: Any) -> str:
    """Return a docstring's first sentence."""
    return _sentences(command)[0]


def _more(command: Any) -> str:
    """Return what a docstring says after that."""
    return _sentences(command)[1]


def _sentences(command: Any) -> tuple[str, str]:
    first, _, more = " ".join((command.help or "").split()).partition(". ")
    return first.removesuffix(".") + ".", more


def _synopsis(name: str, arguments: Sequence[Any], options: Sequence[Any]) -> str:
    needed = [_shape(each) for each in options if each.required]
    free = ["[OPTIONS]"] if len(needed) < len(options) else []
    given = [_shape(each) if each.required else f"[{_shape(each)}]" for each in arguments]
    given = [f"{shape}..." if each.nargs == -1 else shape for shape, each in zip(given, arguments, strict=True)]
    return _wrapped(" ".join([name, *free, *needed, *given]))


def _shape(parameter: Any) -> str:
    """Return how a parameter is written: `--for ACCOUNT`, `AGENT`."""
    name = str(parameter.metavar or parameter.name.upper())
    if parameter.param_type_name == "argument":
        return name
    if parameter.is_flag:
        return "/".join(parameter.opts)
    return f"{'/'.join(parameter.opts)} {parameter.metavar or _value(parameter.type_descriptor.annotation)}"


def _value(kind: Any) -> str:
    """Return what stands for a value of a type."""
    [kind] = get_args(kind) or [kind]
    if issubclass(kind, Enum):
        return "|".join(each.value for each in kind)
    return {int: "NUMBER", Path: "FOLDER"}.get(kind, "TEXT")


def _described(shape: str, parameter: Any) -> str:
    default = parameter.default
    told = f" Otherwise: {default}." if parameter.param_type_name == "option" and _is_told(default) else ""
    needed = " Needed." if parameter.required and parameter.param_type_name == "option" else ""
    text = f"{parameter.help or ''}{needed}{told}"
    return f"{shape}\n{textwrap.indent(_wrapped(text), '    ')}"


def _is_told(default: object) -> bool:
    return default not in (None, "", False, ()) and not callable(default)


def _exits(name: str, command: Any, options: Sequence[Any]) -> list[Exit]:
    named = {option for each in options for option in each.opts}
    codes = list(exits.ANY if _speaks_to(command) else exits.ANY[:-1])
    if "--timeout" in named and name.startswith("tutelage turn"):
        codes += exits.ENDS_OF_A_TURN
        codes += exits.NEEDS_OF_A_TURN if "--after" not in named or "--wait" in named else ()
    return codes + list(exits.OF_A_WAIT if "--timeout" in named else ())


def _environment(command: Any, options: Sequence[Any]) -> list[str]:
    service = _speaks_to(command)
    reached = [f"TUTELAGE_TO_{service.upper()}", "TUTELAGE_TOKEN"] if service else []
    return reached + [str(each.envvar) for each in options if each.envvar]


def _speaks_to(command: Any) -> str:
    return str(getattr(command.callback, "speaks_to", ""))


def _wrapped(text: str) -> str:
    return "".join(f"{line}\n" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
