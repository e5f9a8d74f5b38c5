"""What a service does around its server: its hold on the data folder, its database, and where it can be found.

Invariant: what is held is let go of in the reverse order, however the block ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from service_kit.data_folder import DataFolder
from service_kit.database import Database
from service_kit.grpc_server import TlsFiles
from service_kit.identity import TokenKeys, embedded_issuer, jwks_issuer
from service_kit.settings import ServiceSettings


@asynccontextmanager
async def holding(
    service: str, settings: ServiceSettings, migrate: Callable[[str], None]
) -> AsyncIterator[tuple[DataFolder, Database]]:
    """Hold a service's data folder, with its database brought up to date, for as long as the block lasts.

    Raises `SetupProblem` where another process holds it, or something cannot be opened.
    """
    folder = DataFolder(settings.data_dir)
    lock = folder.lock(service)
    try:
        await asyncio.to_thread(migrate, settings.database)
        database = Database(settings.database)
        try:
            yield folder, database
        finally:
            await database.close()
    finally:
        lock.release()


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
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(path.unlink)
