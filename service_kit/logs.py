"""Logs: events with keys, one JSON object a line, from our code and from every library alike.

Secrets and people's words are not logged: no call of ours gives them. `without_words` is the second line,
for the call that does by mistake.
"""

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Left out of every event, at any depth.
WORDS = frozenset(
    (
        *(
            "access_token",
            "authorization",
            "cookie",
            "password",
            "private_key",
            "secret",
            "signing_key",
            "token",
        ),
        *(
            "input",
            "input_json",
            "edited_input_json",
            "output",
            "output_json",
            "result",
            "reply",
            "error_text",
        ),
        *("answer", "answer_json", "message", "messages", "prompt", "system", "text", "content", "words"),
        *("reason", "why", "wrong", "right", "because", "guidance", "instructions", "metadata", "parameters"),
    )
)

# At INFO these tell every statement, with its values.
_TOO_TALKATIVE = ("sqlalchemy", "asyncio")


def configure(level: str = "info", format: Literal["json", "console"] = "json", stream: TextIO | None = None) -> None:
    """Send all logs of this process to a stream, stderr if none is given. Can be called again."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        without_words,
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if format == "json"
        else [structlog.dev.ConsoleRenderer(colors=False)]
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(level=threshold, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _TOO_TALKATIVE:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def without_words(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave out what could hold a secret or somebody's words, at any depth."""
    return {key: _cleaned(value) for key, value in event.items() if key not in WORDS}


def _cleaned(value: object) -> object:
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items() if key not in WORDS}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cleaned(inner) for inner in value)
    return value
