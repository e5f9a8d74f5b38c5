"""Rows as domain values, and back: a row's columns are its value's fields, but for what the database alone keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from sqlalchemy import RowMapping

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.hosts import Session
from runtime_service.domain.journal import Record, kind_of
from runtime_service.domain.turns import Conversation, Turn

Row = dict[str, Any]

_TURN = [field.name for field in fields(Turn)]
_APPROVAL = [field.name for field in fields(Approval)]
_CALL = [field.name for field in fields(Call)]
_SESSION = [field.name for field in fields(Session)]
_CONVERSATION = [field.name for field in fields(Conversation)]


def _picked(row: RowMapping, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def turn_of(row: RowMapping) -> Turn:
    """Return the turn that a row of `turns` is."""
    return Turn(**_picked(row, _TURN))


def conversation_of(row: RowMapping) -> Conversation:
    """Return the conversation that a row of `conversations` is."""
    return Conversation(**_picked(row, _CONVERSATION))


def session_of(row: RowMapping) -> Session:
    """Return the session that a row of `sessions` is."""
    return Session(**_picked(row, _SESSION))


def approval_of(row: RowMapping) -> Approval:
    """Return the approval that a row of `approvals` is."""
    return Approval(**_picked(row, _APPROVAL))


def call_of(row: RowMapping) -> Call:
    """Return the call that a row of `calls` is."""
    return Call(**_picked(row, _CALL))


def _own_row(value: Any, names: Iterable[str]) -> Row:
    return {name: getattr(value, name) for name in names}


def turn_row(turn: Turn) -> Row:
    """Return a turn's row."""
    row = _own_row(turn, _TURN)
    del row["made"]
    return row | {"work_for_id": turn.work_for.id, "given_by_id": turn.given_by.id}


def conversation_row(conversation: Conversation) -> Row:
    """Return a conversation's row."""
    row = _own_row(conversation, _CONVERSATION)
    del row["made"]
    return row | {"opened_by_id": conversation.opened_by.id}


def approval_row(approval: Approval) -> Row:
    """Return an approval's row."""
    row = _own_row(approval, _APPROVAL)
    del row["seq"]
    return row


def put_to_rows(approval: Approval) -> list[Row]:
    """Return a row for each of those to whom an approval is put."""
    return [
        {"tenant": approval.tenant, "who": who, "approval_id": approval.id, "turn_id": approval.turn_id}
        for who in approval.put_to
    ]


def session_row(session: Session) -> Row:
    """Return a session's row."""
    return _own_row(session, _SESSION)


def call_row(call: Call) -> Row:
    """Return a call's row."""
    return _own_row(call, _CALL) | {"open": call.open, "to_copy": call.to_copy}


def record_row(turn: Turn, record: Record) -> Row:
    """Return a record's row."""
    return {
        "turn_id": turn.id,
        "line": record.line,
        "tenant": turn.tenant,
        "writer": record.writer,
        "time": record.time,
        "address": record.address,
        "kind": kind_of(record.what),
        "facts": record.facts,
        "words": record.words,
        "words_salt": record.words_salt,
        "words_digest": record.words_digest,
        "content_digest": record.content_digest,
        "chain": record.chain,
        "erase_time": record.erase_time,
    }


def delegate_row(turn: Turn, call: DelegateCall) -> Row:
    """Return the row of what a delegate's call returned, as the turn's last record says."""
    return {
        "turn_id": turn.id,
        "line": turn.line,
        "tenant": turn.tenant,
        "delegate": call.delegate,
        "input": call.said.input,
        "output": call.said.output,
    }
