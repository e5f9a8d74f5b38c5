"""The nursery as it is, for the tests here: both services in processes of their own, and the tool host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from examples.nursery.stage import set_up

from tests.story.nursery import Nursery


@pytest.fixture(scope="module")
async def nursery(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nursery]:
    """A nursery with everybody signed in. Each test has an agent of its own."""
    async with set_up(tmp_path_factory.mktemp("nursery")) as stage:
        people = {
            "fern": await stage.person("fern", "builds"),
            "gus": await stage.person("gus", "uses"),
            "hale": await stage.person("hale", "uses", "supervises", "teaches"),
            "audra": await stage.person("audra", "audits"),
        }
        await stage.start_host()
        await stage.tools_on_offer(people["gus"].runtime)
        yield Nursery(stage, people)
