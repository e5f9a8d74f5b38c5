"""`tutelage conversation`: turns of one agent, each of which sees the earlier ones."""

from __future__ import annotations

from typing import Annotated

import typer

from tutelage.cli.arguments import SOME, AgentName, Approve, AsJson, ConversationId, Most, OfAgent
from tutelage.cli.commands import at_runtime, examples
from tutelage.cli.layout import print_named, print_table, tell
from tutelage.cli.pages import listed, say_of_more
from tutelage.cli.setting_words import setting_of, words_of
from tutelage.cli.turn_layout import print_turns
from tutelage.client import Tutelage
from tutelage.journal_lines import time_of, who
from tutelage.runtime.v1.conversations_pb2 import (
    Conversation,
    GetConversationRequest,
    ListConversationsRequest,
    ListConversationsResponse,
    OpenConversationRequest,
    SetConversationApprovalRequest,
)
from tutelage.runtime.v1.turns_pb2 import ListTurnsRequest

app = typer.Typer(no_args_is_help=True, help="Open conversations, and say who is asked in them.")

THE_AGENTS = "agent"


@app.command("open", epilog=examples("tutelage conversation open hello --id gus-1 --approve all"))
@at_runtime
async def open_conversation(
    runtime: Tutelage,
    agent: AgentName,
    conversation_id: Annotated[str, typer.Option("--id", help="An id of your choice. None: one is made up.")] = "",
    approve: Approve = "",
    as_json: AsJson = False,
) -> None:
    """Open a conversation, or name the one of that id."""
    request = OpenConversationRequest(agent=agent, conversation_id=conversation_id, approve=setting_of(approve))
    tell((await runtime.conversations.OpenConversation(request)).conversation, as_json, _print)


@app.command("list", epilog=examples("tutelage conversation list --agent hello"))
@at_runtime
async def list_conversations(
    runtime: Tutelage, agent: OfAgent = "", most: Most = SOME, as_json: AsJson = False
) -> None:
    """List conversations, newest first."""
    found = await listed(runtime.conversations.ListConversations, ListConversationsRequest(agent=agent), most)
    tell(found, as_json, _print_all)


@app.command(epilog=examples("tutelage conversation show gus-1"))
@at_runtime
async def show(runtime: Tutelage, conversation_id: ConversationId, as_json: AsJson = False) -> None:
    """Show a conversation and its newest turns."""
    found = await runtime.conversations.GetConversation(GetConversationRequest(conversation_id=conversation_id))
    tell(found.conversation, as_json, _print)
    if not as_json:
        turns = await listed(runtime.turns.ListTurns, ListTurnsRequest(conversation_id=conversation_id), SOME)
        print_turns(turns.turns)


@app.command(
    epilog=examples(
        "tutelage conversation approve gus-1 all",
        "tutelage conversation approve gus-1 @two-people.yaml",
        "tutelage conversation approve gus-1 agent",
    )
)
@at_runtime
async def approve(
    runtime: Tutelage,
    conversation_id: ConversationId,
    setting: Annotated[
        str, typer.Argument(metavar="SETTING", help="changes, all, nothing, @FILE, or agent: as the agent's says.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say who is asked in the turns to come. Who does not supervise can only add to what others set."""
    asks = setting_of("" if setting == THE_AGENTS else setting)
    request = SetConversationApprovalRequest(conversation_id=conversation_id, approve=asks)
    tell((await runtime.conversations.SetConversationApproval(request)).conversation, as_json, _print)


def _print_all(found: ListConversationsResponse) -> None:
    if not found.conversations:
        typer.echo("There are no such conversations.")
        return
    rows = [
        (one.id, one.agent, str(one.turns), _asks(one), who(one.opened_by), time_of(one.create_time))
        for one in found.conversations
    ]
    print_table("Conversations", ("conversation", "agent", "turns", "asks", "opened by", "at"), rows)
    say_of_more(found)


def _print(conversation: Conversation) -> None:
    facts = (
        ("agent", conversation.agent),
        ("asks", _asks(conversation)),
        ("opened by", f"{who(conversation.opened_by)} at {time_of(conversation.create_time)}"),
        ("turns", str(conversation.turns)),
    )
    print_named(f"conversation  {conversation.id}", facts)


def _asks(conversation: Conversation) -> str:
    return words_of(conversation.approve) or "as the agent's setting says"
