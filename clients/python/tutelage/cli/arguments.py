"""What several commands are given, each under one name everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from tutelage.cli.completing import agents, approvals_that_wait

AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.", autocompletion=agents)]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn.")]
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval.", autocompletion=approvals_that_wait)]
ConversationId = Annotated[str, typer.Argument(metavar="ID", help="The conversation.")]
TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task, TURN/AGENT: `tutelage turn show` names it.")]
InstructionId = Annotated[str, typer.Argument(metavar="ID", help="The instruction.")]
CorrectionId = Annotated[str, typer.Argument(metavar="ID", help="The correction.")]

OfAgent = Annotated[str, typer.Option("--agent", help="Of this agent.", autocompletion=agents)]
Why = Annotated[str, typer.Option(help="Why, for the people who read it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask again at the prompt.")]
RequestId = Annotated[
    str, typer.Option(metavar="TEXT", help="Makes the same command again the same request. None: one is made up.")
]
Most = Annotated[int, typer.Option("--most", min=1, metavar="NUMBER", help="How many at most.")]
SOME = 100

AsJson = Annotated[bool, typer.Option("--json", help="As one JSON object, to the letter.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="As one JSON object a line, to the letter.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Wait so long at most, and end with 124 then.")
]
Approve = Annotated[
    str, typer.Option(metavar="SETTING", help="Who is asked: changes, all, nothing, or @FILE of an ApprovalSetting.")
]
