"""A server on loopback that speaks the providers' wire formats: OpenAI chat completions and responses, Anthropic
messages, streamed and whole.

What it answers is put in beforehand, one answer for each request; what arrived is kept, to be counted and looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A tool call, with its arguments in the pieces in which they come."""

    id: str
    name: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Says:
    """A reply.

    `cut_after`: so many events of its stream come, then the connection is gone; `quietly`, as if that were the end.
    `begun` is waited for before it begins, `held` before its last event. `reason` is why it ends, in the format's word.
    """

    text: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    thought: str = ""
    tokens: tuple[int, int] = (1_000, 100)
    cut_after: int | None = None
    quietly: bool = False
    reason: str = ""
    begun: asyncio.Event | None = None
    held: asyncio.Event | None = None


@dataclass(frozen=True)
class Status:
    """An error, as a provider says it."""

    status: int
    message: str = "No."
    headers: Mapping[str, str] = field(default_factory=dict)
    param: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Bytes:
    """A body that is none of the formats."""

    body: bytes
    kind: str = "application/json"


@dataclass(frozen=True)
class Silence:
    """Nothing comes, and the connection stays."""


@dataclass(frozen=True)
class HangsUp:
    """The connection is gone before anything came."""


Answer = Says | Status | Bytes | Silence | HangsUp


@dataclass(frozen=True)
class Arrived:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Wire:
    """The server. `answers` are given in their order; where there are none, what `thinks` says of a request."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.thinks: Callable[[Arrived], Answer] = lambda _: Status(418, "No answer was put in.")
        self.arrived: list[Arrived] = []
        self.port = 0
        self.asked = asyncio.Event()
        # Whoever asked and got nothing went away.
        self.left = asyncio.Event()
        self._connections: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went, or the server goes
        finally:
            self._connections.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection goes on."""
        first = (await reader.readuntil(b"\r\n")).decode().split()
        headers = {}
        while (line := (await reader.readuntil(b"\r\n")).decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        self.arrived.append(Arrived(first[1], headers, body))
        self.asked.set()
        answer = self.answers.popleft() if self.answers else self.thinks(self.arrived[-1])
        match answer:
            case Says():
                if answer.begun is not None:
                    await answer.begun.wait()
                return await _say(writer, first[1], body, answer)
            case Status():
                _whole(writer, answer.status, json.dumps(_error(first[1], answer)).encode(), headers=answer.headers)
            case Bytes():
                _whole(writer, 200, answer.body, answer.kind)
            case Silence():
                await reader.read()
                self.left.set()
                return False
            case HangsUp():
                writer.transport.abort()
                return False
        await writer.drain()
        return True


def _whole(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> None:
    head = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body)


async def _say(writer: asyncio.StreamWriter, path: str, asked: Mapping[str, Any], says: Says) -> bool:
    model = asked["model"]
    form = _FORMS[path.rsplit("/", 1)[-1]]
    if not asked.get("stream"):
        _whole(writer, 200, json.dumps(form.whole(model, says)).encode())
        await writer.drain()
        return True
    chunked = not says.quietly
    how = "transfer-encoding: chunked" if chunked else "connection: close"
    writer.write(f"HTTP/1.1 200 Said\r\ncontent-type: text/event-stream\r\n{how}\r\n\r\n".encode())
    events = list(form.stream(model, says))
    for number, event in enumerate(events):
        if says.held is not None and event is events[-1]:
            await says.held.wait()
        if number == says.cut_after:
            await writer.drain()
            if chunked:
                writer.transport.abort()
            return False
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n" if chunked else event)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return chunked


def _error(path: str, answer: Status) -> dict[str, Any]:
    if path.endswith("/messages"):
        kind = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error", 404: "not_found_error"}
        by_status = "invalid_request_error" if answer.status < 500 else "api_error"
        return {"type": "error", "error": {"type": kind.get(answer.status, by_status), "message": answer.message}}
    return {
        "error": {"message": answer.message, "type": "some_error", "param": answer.param, "code": answer.code},
    }


def _event(data: Mapping[str, Any], *, named: bool) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


class ChatCompletions:
    @staticmethod
    def whole(model: str, says: Says) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(says.text) or None}
        if says.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.args)}}
                for call in says.calls
            ]
        reason = says.reason or ("tool_calls" if says.calls else "stop")
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": model} | {
            "choices": [choice],
            "usage": _chat_usage(says),
        }

    @staticmethod
    def stream(model: str, says: Says) -> Iterator[bytes]:
        def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return _event(_chunk(model, choices), named=False)

        yield chunk({"role": "assistant", "content": ""})
        if says.thought:
            yield chunk({"reasoning_content": says.thought})
        for text in says.text:
            yield chunk({"content": text})
        for index, call in enumerate(says.calls):
            function = {"name": call.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
            for piece in call.args:
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, says.reason or ("tool_calls" if says.calls else "stop"))
        yield _event(_chunk(model, []) | {"usage": _chat_usage(says)}, named=False)
        yield b"data: [DONE]\n\n"


def _chunk(model: str, choices: Sequence[Any]) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": model}
    return head | {"choices": choices}


def _chat_usage(says: Says) -> dict[str, int]:
    read, written = says.tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


class Responses:
    @staticmethod
    def _items(says: Says, status: str = "completed") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if says.thought:
            summary = [{"type": "summary_text", "text": says.thought}]
            items.append({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "c2VjcmV0"})
        if says.text:
            content = [{"type": "output_text", "text": "".join(says.text), "annotations": [], "logprobs": []}]
            items.append({"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content})
        for number, call in enumerate(says.calls):
            items.append(
                {"id": f"fc_{number}", "type": "function_call", "status": status, "call_id": call.id}
                | {"name": call.name, "arguments": "".join(call.args)}
            )
        return items

    @classmethod
    def whole(cls, model: str, says: Says, status: str = "completed") -> dict[str, Any]:
        read, written = says.tokens
        done = status == "completed"
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written} | {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {"id": "resp_1", "object": "response", "created_at": 1_790_000_000, "status": status} | {
            "model": model,
            "output": cls._items(says) if done else [],
            "usage": usage if done else None,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
        }

    @classmethod
    def stream(cls, model: str, says: Says) -> Iterator[bytes]:
        for number, event in enumerate(cls._events(model, says)):
            yield _event(event | {"sequence_number": number}, named=True)

    @classmethod
    def _events(cls, model: str, says: Says) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": cls.whole(model, says, "in_progress")}
        for index, item in enumerate(cls._items(says)):
            at = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "reasoning":
                yield {"type": "response.output_item.added", "output_index": index, "item": item | {"summary": []}}
                part: dict[str, Any] = {"type": "summary_text", "text": says.thought}
                yield {"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": part} | at
                yield {"type": "response.reasoning_summary_text.done", "summary_index": 0, "text": says.thought} | at
            elif item["type"] == "message":
                begun = item | {"status": "in_progress", "content": []}
                yield {"type": "response.output_item.added", "output_index": index, "item": begun}
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                yield {"type": "response.content_part.added", "content_index": 0, "part": part} | at
                for text in says.text:
                    yield {"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []} | at
                whole = {"content_index": 0, "text": "".join(says.text), "logprobs": []}
                yield {"type": "response.output_text.done"} | whole | at
                yield {"type": "response.content_part.done", "content_index": 0, "part": item["content"][0]} | at
            else:
                call = says.calls[index - bool(says.text) - bool(says.thought)]
                begun = item | {"status": "in_progress", "arguments": ""}
                yield {"type": "response.output_item.added", "output_index": index, "item": begun}
                for piece in call.args:
                    yield {"type": "response.function_call_arguments.delta", "delta": piece} | at
                yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]} | at
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": cls.whole(model, says)}


class Messages:
    @staticmethod
    def whole(model: str, says: Says) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": "".join(says.text)}] if says.text else []
        for call in says.calls:
            content.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads("".join(call.args))}
            )
        return Messages._message(model, says) | {"content": content, "stop_reason": Messages._reason(says)}

    @staticmethod
    def _message(model: str, says: Says) -> dict[str, Any]:
        read, written = says.tokens
        usage = {"input_tokens": read, "output_tokens": written}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}

    @staticmethod
    def _reason(says: Says) -> str:
        return says.reason or ("tool_use" if says.calls else "end_turn")

    @staticmethod
    def stream(model: str, says: Says) -> Iterator[bytes]:
        for event in Messages._events(model, says):
            yield _event(event, named=True)

    @staticmethod
    def _events(model: str, says: Says) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": Messages._message(model, says)}
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if says.thought:
            deltas = [{"type": "thinking_delta", "thinking": says.thought}]
            deltas += [{"type": "signature_delta", "signature": "c2lnbmVk"}]
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if says.text:
            deltas = [{"type": "text_delta", "text": text} for text in says.text]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call in says.calls:
            begun: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            blocks.append((begun, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *call.args)]))
        for index, (begun, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        ended = {"stop_reason": Messages._reason(says), "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": says.tokens[1]}}
        yield {"type": "message_stop"}


_FORMS: dict[str, Any] = {"completions": ChatCompletions, "responses": Responses}
# Anthropic's own path, and the one of its newest forms.
_FORMS |= {"messages": Messages, "messages?beta=true": Messages}
