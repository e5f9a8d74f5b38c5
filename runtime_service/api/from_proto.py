"""The contract's messages as domain values. What this release does not do yet is refused as such, never half taken."""

from __future__ import annotations

from tutelage.runtime.v1 import agents_pb2, approval_setting_pb2, effects_pb2, tools_pb2

from runtime_service.api.checks import Fields
from runtime_service.domain.agents import (
    AgentSpec,
    AgentTool,
    DelegateTool,
    HostedLoop,
    HostTool,
    Limits,
    Skill,
    ToolUse,
)
from runtime_service.domain.effects import Declaration, Effects
from runtime_service.domain.principals import Principal
from runtime_service.domain.problems import NotInThisRelease
from runtime_service.domain.rules import (
    ApprovalRule,
    NothingAsked,
    RuleKind,
    RuleSetting,
    Setting,
    rule_problems,
)
from runtime_service.engine import schemas
from service_kit.messages import by_name

MOST_TOOLS = 128
MOST_PUT_TO = 100


def setting(
    message: approval_setting_pb2.ApprovalSetting, path: str, fields: Fields, given_by: Principal | None = None
) -> Setting | None:
    """Return an approval setting; None where none is set. Refuses a rule that can never be met (R2.6).

    `given_by`: who gives the work that it is for, where that is known already.
    """
    match message.WhichOneof("setting"):
        case "rule":
            rule = _rule(message.rule)
            for where, sentence in rule_problems(rule, f"{path}.rule", given_by):
                fields.refuse(where, sentence)
            if len(rule.put_to) > MOST_PUT_TO or len(rule.names) > MOST_PUT_TO:
                fields.refuse(f"{path}.rule", f"At most {MOST_PUT_TO} names.")
            return RuleSetting(rule)
        case "nothing":
            return NothingAsked()
        case "expression" | "decider" as kind:
            raise NotInThisRelease(f"An approval setting by {kind}")
        case _:
            return None


def _rule(message: approval_setting_pb2.ApprovalRule) -> ApprovalRule:
    kinds = {"changes": RuleKind.CHANGES, "all": RuleKind.ALL, "names": RuleKind.NAMES}
    return ApprovalRule(
        kind=kinds.get(message.WhichOneof("rule") or "", RuleKind.UNSPECIFIED),
        tools_alone=message.changes.tools_alone,
        names=tuple(message.names.names),
        put_to=tuple(message.put_to),
        approvals_needed=max(1, message.approvals_needed),
        not_the_giver=message.not_the_giver,
        expires_after_seconds=message.expires_after_seconds,
    )


def agent_spec(message: agents_pb2.AgentSpec, fields: Fields) -> AgentSpec:
    """Return what an agent is."""
    if message.HasField("program"):
        raise NotInThisRelease("An agent that a caller runs")
    if message.suggests_instructions:
        raise NotInThisRelease("suggest_instruction")
    fields.name("spec.name", message.name)
    fields.text("spec.purpose", message.purpose)
    fields.needed("spec.runs", message.WhichOneof("runs") or "")
    return AgentSpec(
        name=message.name,
        purpose=message.purpose,
        runs=HostedLoop(message.hosted.model),
        skills=_skills(message, fields),
        tools=_tools(message, fields),
        approve=setting(message.approve, "spec.approve", fields),
        limits=Limits(
            model_requests=message.limits.model_requests,
            output_tokens=message.limits.output_tokens,
            cost_micro_usd=message.limits.cost_micro_usd,
            depth=message.limits.depth,
        ),
    )


def _skills(message: agents_pb2.AgentSpec, fields: Fields) -> tuple[Skill, ...]:
    seen: set[str] = set()
    for place, skill in enumerate(message.skills):
        path = f"spec.skills[{place}]"
        if skill.name or len(message.skills) > 1:
            fields.name(f"{path}.name", skill.name)
        if skill.name in seen:
            fields.refuse(f"{path}.name", "Another skill has this name.")
        seen.add(skill.name)
        fields.text(f"{path}.description", skill.description)
        fields.text(f"{path}.version", skill.version, 256)
        if skill.input_schema_json and (wrong := schemas.check_schema(skill.input_schema_json)):
            fields.refuse(f"{path}.input_schema_json", wrong)
        output = skill.output_schema_json
        if output and (wrong := schemas.check_schema(output, must_be_object=False)):
            fields.refuse(f"{path}.output_schema_json", wrong)
    return tuple(
        Skill(one.name, one.description, one.version, one.input_schema_json, one.output_schema_json)
        for one in message.skills
    )


def _tools(message: agents_pb2.AgentSpec, fields: Fields) -> tuple[ToolUse, ...]:
    uses: list[ToolUse] = []
    if len(message.tools) > MOST_TOOLS:
        fields.refuse("spec.tools", f"At most {MOST_TOOLS} tools.")
    for place, one in enumerate(message.tools):
        path = f"spec.tools[{place}]"
        use = _tool_use(one, path, fields)
        if use in uses:
            fields.refuse(path, "This is named twice.")
        if use is not None:
            uses.append(use)
    return tuple(uses)


def _tool_use(message: agents_pb2.ToolUse, path: str, fields: Fields) -> ToolUse | None:
    match message.WhichOneof("use"):
        case "tool":
            return HostTool(fields.name(f"{path}.tool", message.tool))
        case "agent":
            return AgentTool(fields.name(f"{path}.agent", message.agent))
        case "delegate":
            return DelegateTool(fields.name(f"{path}.delegate", message.delegate))
        case "mcp_server" as kind:
            raise NotInThisRelease(f"A tool by {kind}")
        case _:
            fields.refuse(path, "Say what it is: a tool, an agent or a delegate.")
            return None


def declaration(message: tools_pb2.Tool, path: str, fields: Fields) -> Declaration:
    """Return a tool as its host declares it."""
    fields.name(f"{path}.name", message.name)
    fields.text(f"{path}.description", message.description, 64 * 1024)
    schema = message.input_schema_json or '{"type":"object"}'
    if wrong := schemas.check_schema(schema):
        fields.refuse(f"{path}.input_schema_json", wrong)
    timeout = message.timeout.ToTimedelta().total_seconds() if message.HasField("timeout") else None
    if timeout is not None and timeout <= 0:
        fields.refuse(f"{path}.timeout", "A time-out is longer than nothing.")
    # What this release does not know counts as not declared.
    effects = by_name(Effects, effects_pb2.Effects, message.effects)
    return Declaration(message.name, message.description, schema, effects, timeout)
