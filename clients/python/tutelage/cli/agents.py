"""`tutelage agent`: the agents that turns run."""

from __future__ import annotations

from typing import Annotated

import typer

from tutelage.cli.arguments import AgentName, AsJson, RequestId
from tutelage.cli.commands import at_runtime, examples, once
from tutelage.cli.layout import print_named, print_table, tell
from tutelage.cli.pages import listed
from tutelage.cli.problems import CommandError, fields_line
from tutelage.cli.setting_words import words_of
from tutelage.cli.spec_files import message_of
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.journal_lines import time_of
from tutelage.runtime.v1.agents_pb2 import (
    Agent,
    AgentSpec,
    GetAgentRequest,
    Limits,
    ListAgentsRequest,
    ListAgentsResponse,
    PutAgentRequest,
)

app = typer.Typer(no_args_is_help=True, help="Register agents, and see what they are.")


@app.command(epilog=examples("tutelage agent put hello.yaml", "tutelage agent put - --json < hello.json"))
@at_runtime
async def put(
    runtime: Tutelage,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An AgentSpec in YAML or JSON; -: standard input.")],
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Register an agent, or a new version of it. The same spec gives the same version."""
    written = message_of(file, AgentSpec())
    request = PutAgentRequest(spec=written.message, request_id=once(request_id))
    try:
        agent = (await runtime.agents.PutAgent(request)).agent
    except TutelageError as error:
        if not error.fields:
            raise
        wrong = fields_line(error, lambda path: written.place(path.removeprefix("spec.")))
        raise CommandError(f"{written.name} cannot be taken: {wrong}") from None
    tell(agent, as_json, _print)


@app.command("list", epilog=examples("tutelage agent list"))
@at_runtime
async def list_agents(runtime: Tutelage, as_json: AsJson = False) -> None:
    """List the agents, each at its newest version, by name."""
    tell(await listed(runtime.agents.ListAgents, ListAgentsRequest()), as_json, _print_all)


@app.command(epilog=examples("tutelage agent show hello", "tutelage agent show hello --json"))
@at_runtime
async def show(
    runtime: Tutelage,
    agent: AgentName,
    version: Annotated[str, typer.Option(help="Which version. None: the newest.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show an agent: who it is, what runs it, what it can be asked and what it may call."""
    found = await runtime.agents.GetAgent(GetAgentRequest(name=agent, version=version))
    tell(found.agent, as_json, _print)


def _print_all(found: ListAgentsResponse) -> None:
    if not found.agents:
        typer.echo("There are no agents.")
        return
    rows = [
        (one.spec.name, _runs(one.spec), ", ".join(_tools(one.spec)), one.version, time_of(one.create_time))
        for one in found.agents
    ]
    print_table("Agents", ("agent", "runs", "tools", "version", "registered"), rows)


def _print(agent: Agent) -> None:
    spec = agent.spec
    facts = (
        ("version", agent.version),
        ("registered", time_of(agent.create_time)),
        ("purpose", spec.purpose),
        ("runs", _runs(spec)),
        ("tools", ", ".join(_tools(spec))),
        ("asks", words_of(spec.approve)),
        ("limits", _limits(spec.limits)),
        ("suggests", "instructions" if spec.suggests_instructions else ""),
    )
    print_named(f"agent  {spec.name}", facts)
    if spec.skills:
        rows = [(one.name, one.version, one.description, one.input_schema_json or "text") for one in spec.skills]
        print_table("Its skills", ("skill", "version", "description", "input"), rows)


def _runs(spec: AgentSpec) -> str:
    return spec.hosted.model if spec.HasField("hosted") else "a program"


def _tools(spec: AgentSpec) -> list[str]:
    """Name what an agent may call; what is no host's tool says so."""
    kinds = ((one.WhichOneof("use") or "", one) for one in spec.tools)
    return [getattr(one, kind) + ("" if kind == "tool" else f" ({kind})") for kind, one in kinds if kind]


def _limits(limits: Limits) -> str:
    said = (
        (limits.model_requests, "model requests"),
        (limits.output_tokens, "output tokens"),
        (limits.cost_micro_usd, "millionths of a dollar"),
        (limits.depth, "deep"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in said if number)
