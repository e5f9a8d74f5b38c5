"""What a service does around its server: its hold on the data folder, its database, and where it can be found.

Invariant: what is held is let go of in the reverse order, however the block ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from service_kit.data_folder import DataFolder
from service_kit.database import Database
from service_kit.grpc_server import TlsFiles
from service_kit.identity import TokenKeys, embedded_issuer, jwks_issuer
from service_kit.settings import ServiceSettings


class Migrate(Protocol):
    """Brings a service's database to what its release needs."""

    def __call__(self, url: str, *, at_start: bool = False) -> None: ...


@asynccontextmanager
async def holding(
    service: str, settings: ServiceSettings, migrate: Migrate
) -> AsyncIterator[tuple[DataFolder, Database]]:
    """Hold a service's data folder, with its database as this release needs it, for as long as the block lasts.

    One process alone has a folder with its database's file in it; a database elsewhere has as many replicas as there
    are. Raises `SetupProblem` where another process holds the folder, or something cannot be opened.
    """
    folder = DataFolder(settings.data_dir)
    async with contextlib.AsyncExitStack() as held:
        database = Database(settings.database)
        held.push_async_callback(database.close)
        if database.is_a_file:
            held.callback(folder.lock(service).release)
        await asyncio.to_thread(migrate, settings.database, at_start=True)
        yield folder, database


def token_keys(settings: ServiceSettings, folder: DataFolder) -> TokenKeys:
    """Return whose tokens are trusted: the issuer that is set, or else the data folder's own key. Reads files."""
    if settings.auth_jwks_file is None:
        return TokenKeys((embedded_issuer(folder.signing_key()),))
    issuer = jwks_issuer(
        settings.auth_jwks_file,
        issuer=settings.auth_issuer,
        audience=settings.auth_audience,
        interactive_clients=frozenset(settings.auth_interactive_clients),
    )
    return TokenKeys((issuer,))


def tls_files(settings: ServiceSettings) -> TlsFiles | None:
    """Return the server's certificate and key, where they are set."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    return TlsFiles(settings.tls_cert_file, settings.tls_key_file)


def address_of(listen: str, port: int) -> str:
    """Return where a server listens that was bound to `listen` and got this port."""
    return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"


@asynccontextmanager
async def address_file(path: Path, address: str) -> AsyncIterator[None]:
    """Say where the service listens, for as long as it does: a port may have been chosen by the system."""
    await asyncio.to_thread(path.write_text, address)
    try:
        yield
    finally:
        await asyncio.to_thread(_remove, path, address)


def _remove(path: Path, address: str) -> None:
    """Remove what says where the service listens, unless another replica has written it since."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text() == address:
            path.unlink()
