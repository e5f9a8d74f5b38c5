"""What the client's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tutelage.client import Tutelage, connect

from tests.client.hosted import Tools
from tests.client.runtime_double import RuntimeDouble, runtime_double


@pytest.fixture
async def double() -> AsyncIterator[RuntimeDouble]:
    """A server that speaks the contract as the test tells it to."""
    async with runtime_double() as started:
        yield started


@pytest.fixture
async def runtime(double: RuntimeDouble) -> AsyncIterator[Tutelage]:
    """A client of that server."""
    async with connect(double.address, "the-token") as client:
        yield client


@pytest.fixture
def tools() -> Tools:
    """A host's tools, that wait for the test."""
    return Tools()
