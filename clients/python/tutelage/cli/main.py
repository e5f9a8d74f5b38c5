"""`tutelage`: start what there is, sign in, look at turns, answer what waits, and teach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from tutelage.cli import approvals, teach, turns, up
from tutelage.cli.problems import CommandError, fail
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir
from tutelage.token import EIGHT_HOURS, KEY_FILE, TokenError, make_token, signing_key

app = typer.Typer(
    name="tutelage", help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command("up")(up.up)
app.add_typer(turns.app, name="turn")
app.add_typer(approvals.app, name="approvals")
app.add_typer(teach.app, name="teach")


class AccountKind(StrEnum):
    """What stands behind an account."""

    person = "person"
    agent = "agent"
    service = "service"


@app.command()
def token(
    sub: Annotated[str, typer.Option(help="The account's id.")],
    kind: Annotated[AccountKind, typer.Option(help="What stands behind the account.")],
    role: Annotated[
        list[str] | None, typer.Option(help="A role: uses, supervises, teaches, builds, hosts, …; may be given again.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant.")] = "default",
    name: Annotated[str, typer.Option(help="The name that people read.")] = "",
    claims: Annotated[str, typer.Option(help="More claims, as a JSON object; they win.")] = "{}",
    expires_in: Annotated[int, typer.Option(min=1, help="Seconds until it expires.")] = EIGHT_HOURS,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Print a token of the embedded set-up, signed with the data folder's key."""
    more = _claims(claims)
    had_key = (data_dir / KEY_FILE).exists()
    made = make_token(
        signing_key(data_dir),
        sub=sub,
        kind=kind.value,
        roles=role or [],
        tenant=tenant,
        name=name,
        claims=more,
        expires_in=expires_in,
    )
    if not had_key:
        typer.echo(
            f"tutelage: {data_dir} had no key, so one was made. Only services on that folder trust it.", err=True
        )
    typer.echo(made)


def _claims(text: str) -> dict[str, Any]:
    try:
        claims = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint="--claims") from None
    if not isinstance(claims, dict):
        raise typer.BadParameter("it must be a JSON object", param_hint="--claims")
    return claims


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. What goes wrong is one line on stderr: exit code 2 for wrong usage, else 1."""
    try:
        code = app(args=arguments, prog_name="tutelage", standalone_mode=False)
    except typer.TyperException as error:
        _refuse_usage(error)
    except (TokenError, CommandError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.strerror or error}: {error.filename or ''}")
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    raise SystemExit(code or 0)


def _refuse_usage(error: typer.TyperException) -> NoReturn:
    """Say what is wrong with a command, and where its help is. A group without a command has just shown its own."""
    text = " ".join((error.format_message() if hasattr(error, "format_message") else str(error)).split())
    if not text:
        raise SystemExit(2)
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "tutelage"
    fail(f"{text if text.endswith(('.', '?')) else text + '.'} See `{command} --help`.", 2)


if __name__ == "__main__":
    main()
