"""`tutelage`: start what there is, sign in, give agents work, answer what waits, and teach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import typer

from tutelage.cli import agents, approvals, check, conversations, records, teach, tokens, tools_offered, turns, up
from tutelage.cli.commands import examples
from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError, fail
from tutelage.token import TokenError

app = typer.Typer(name="tutelage", help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
app.command(epilog=examples("tutelage up", "tutelage up --data-dir /srv/tutelage --listen 127.0.0.1:9000"))(up.up)
app.command(
    epilog=examples(
        "tutelage token --sub hale --kind person --role uses --role supervises",
        "tutelage token --sub notes --kind service --role hosts --expires-in 86400",
    )
)(tokens.token)
app.command(epilog=examples("tutelage check", "tutelage check --json"))(check.check)
app.add_typer(agents.app, name="agent")
app.command(epilog=examples("tutelage tools"))(tools_offered.tools)
app.add_typer(conversations.app, name="conversation")
app.add_typer(turns.app, name="turn")
app.command(epilog=examples("tutelage records 5f3a", "tutelage records 5f3a --json"))(records.records)
app.add_typer(approvals.app, name="approvals")
app.add_typer(teach.app, name="teach")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. What goes wrong is one line on stderr, and an exit code (`exits.py`)."""
    try:
        code = app(args=arguments, prog_name="tutelage", standalone_mode=False)
    except typer.TyperException as error:
        _refuse_usage(error)
    except TokenError as error:
        fail(str(error))
    except CommandError as problem:
        fail(str(problem), problem.code)
    except UnicodeEncodeError as error:
        fail(f"{error.object!r} cannot be written in {error.encoding}.", Exit.USAGE)
    except OSError as error:
        fail(f"{error.strerror or error}: {error.filename or ''}".removesuffix(": "))
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(Exit.STOPPED) from None
    raise SystemExit(code or Exit.DONE)


def _refuse_usage(error: typer.TyperException) -> NoReturn:
    """Say what is wrong with a command, and where its help is. A group without a command has just shown its own."""
    text = " ".join((error.format_message() if hasattr(error, "format_message") else str(error)).split())
    if not text:
        raise SystemExit(Exit.USAGE)
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "tutelage"
    fail(f"{text if text.endswith(('.', '?')) else text + '.'} See `{command} --help`.", Exit.USAGE)


if __name__ == "__main__":
    main()
