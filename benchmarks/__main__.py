"""`python -m benchmarks [NAME …]`: runs the benchmarks, or some of them, and prints their figures."""

from __future__ import annotations

import asyncio
import sys

from benchmarks import long_conversations, long_turns

EACH = {"long_turns": long_turns.measure, "long_conversations": long_conversations.measure}


def main() -> None:
    names = sys.argv[1:] or list(EACH)
    if unknown := [name for name in names if name not in EACH]:
        sys.exit(f"There is no benchmark {', '.join(unknown)}. There are: {', '.join(EACH)}.")
    for name in names:
        asyncio.run(EACH[name]()).show()


main()
