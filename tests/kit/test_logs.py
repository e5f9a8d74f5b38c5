"""Logs are events with keys, from everywhere, without words."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from sqlalchemy import text

from service_kit import logs
from service_kit.database import Database


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_time_level_and_keys(logged: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(turn="t1", writer=2, tenant="north"):
        structlog.get_logger().info("turn.resumed", unfinished=1)

    (event,) = events(logged)
    time = datetime.fromisoformat(event.pop("time"))
    assert time.tzinfo is not None
    assert abs((datetime.now(UTC) - time).total_seconds()) < 60
    assert event.pop("logger")
    assert event == {
        "event": "turn.resumed",
        "level": "info",
        "turn": "t1",
        "writer": 2,
        "tenant": "north",
        "unfinished": 1,
    }


def test_secrets_and_words_are_left_out_at_any_depth(logged: io.StringIO) -> None:
    structlog.get_logger().info(
        "call.done",
        input_json='{"to": "zebra"}',
        output="zebra",
        token="zebra",
        reason="zebra",
        call={"text": "zebra", "id": "c1"},
        calls=[{"authorization": "zebra"}, ("c2", {"input": "zebra"})],
    )

    (event,) = events(logged)
    assert "zebra" not in json.dumps(event)
    assert (event["call"], event["calls"]) == ({"id": "c1"}, [{}, ["c2", {}]])


def test_the_logs_of_libraries_come_the_same_way(logged: io.StringIO) -> None:
    logging.getLogger("grpc._cython").warning("the port is %s", "taken")
    logging.getLogger("alembic.runtime").info("running upgrade")
    logging.getLogger("alembic.runtime").debug("not asked for")

    assert [(event["event"], event["level"], event["logger"]) for event in events(logged)] == [
        ("the port is taken", "warning", "grpc._cython"),
        ("running upgrade", "info", "alembic.runtime"),
    ]


async def test_no_level_makes_the_database_log_its_statements(logged: io.StringIO, database: Database) -> None:
    """They carry people's words, and at INFO SQLAlchemy would tell them all."""
    logs.configure("debug", "json", logged)
    told = await database.read(
        lambda connection: connection.execute(text("SELECT :words"), {"words": "zebra"}).scalar()
    )
    structlog.get_logger().debug("asked.for")

    assert told == "zebra"
    assert [event["event"] for event in events(logged) if event["logger"] != "asyncio"] == ["asked.for"]


def test_an_exception_is_told_with_where_it_was_raised(logged: io.StringIO) -> None:
    try:
        int("a1")
    except ValueError:
        structlog.get_logger().exception("rpc.defect")

    (event,) = events(logged)
    assert "ValueError: invalid literal" in event["exception"]
    assert "test_logs.py" in event["exception"]


def test_on_a_console_it_reads_as_lines(logged: io.StringIO) -> None:
    logs.configure("warning", "console", logged)
    structlog.get_logger().info("not.asked.for")
    structlog.get_logger().warning("approval.superseded", approval="a1", token="zebra")

    (line,) = logged.getvalue().splitlines()
    assert "approval.superseded" in line
    assert "approval=a1" in line
    assert "zebra" not in line


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(KeyError):
        logs.configure("loud")
