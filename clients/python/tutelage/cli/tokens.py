"""`tutelage token`: accounts of the embedded set-up."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir
from tutelage.token import EIGHT_HOURS, KEY_FILE, make_token, signing_key


class AccountKind(StrEnum):
    """What stands behind an account."""

    person = "person"
    agent = "agent"
    service = "service"


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
