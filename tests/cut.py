"""A connection to PostgreSQL that goes at the worst moment: as it commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

from sqlalchemy.engine import URL


class Cut(Enum):
    """What becomes of a COMMIT on its way."""

    BEFORE = "it never arrives, and the server is told that the client went"
    AFTER = "it arrives, and its answer is lost"
    SILENT = "it never arrives, and the server hears nothing more"


class Proxy:
    """Stands between a service and the server, and cuts the connection at a COMMIT."""

    def __init__(self, server: URL) -> None:
        self.server = server
        self.cut: Cut | None = None
        self.cuts = 0
        self._open: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[URL]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            yield self.server.set(host="127.0.0.1", port=port, query={"ssl": "disable"})
        finally:
            listener.close()
            for writer in self._open:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, asks = await self._connect()
        self._open += [answers, asks]
        back = asyncio.ensure_future(self._pass(server, answers))
        try:
            while (sent := await client.read(65536)) and not (self.cut and sent.endswith(b"COMMIT;\0")):
                asks.write(sent)
            cut, self.cut = (self.cut, None) if sent else (Cut.BEFORE, self.cut)
            self.cuts += bool(sent)
            back.cancel()
            if cut is Cut.AFTER:
                asks.write(sent)
                # Its answer says that it is kept; nobody passes it on.
                await server.read(65536)
            if cut is not Cut.SILENT:
                asks.close()
        finally:
            back.cancel()
            answers.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(folder := self.server.query.get("host"), str):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        return await asyncio.open_connection(self.server.host, self.server.port or 5432)

    @staticmethod
    async def _pass(server: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        while told := await server.read(65536):
            answers.write(told)
        answers.close()
