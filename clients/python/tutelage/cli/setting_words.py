"""Who is asked before a tool runs: as it is said on the command line, and as it is shown."""

from __future__ import annotations

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError
from tutelage.cli.spec_files import message_of
from tutelage.runtime.v1.approval_setting_pb2 import AllRule, ApprovalRule, ApprovalSetting, ChangesRule, NothingAsked


def setting_of(words: str) -> ApprovalSetting | None:
    """Return the setting that an option says; None where it says none. Raises CommandError for what is none."""
    if words.startswith("@"):
        return message_of(words[1:], ApprovalSetting()).message
    match words:
        case "":
            return None
        case "changes":
            return ApprovalSetting(rule=ApprovalRule(changes=ChangesRule()))
        case "all":
            return ApprovalSetting(rule=ApprovalRule(all=AllRule()))
        case "nothing":
            return ApprovalSetting(nothing=NothingAsked())
    raise CommandError(f"{words} is no setting: say changes, all, nothing, or @FILE of an ApprovalSetting.", Exit.USAGE)


def words_of(setting: ApprovalSetting) -> str:
    """Say in words who is asked; nothing where none is set."""
    match setting.WhichOneof("setting"):
        case "rule":
            return _rule_words(setting.rule)
        case "expression":
            return f"expression {setting.expression}"
        case "decider":
            return f"decider {setting.decider}"
        case "nothing":
            return "nothing"
        case _:
            return ""


def _rule_words(rule: ApprovalRule) -> str:
    kind = rule.WhichOneof("rule") or ""
    parts = [
        f"names {', '.join(rule.names.names)}" if kind == "names" else kind,
        "of tools alone" if rule.changes.tools_alone else "",
        f"put to {', '.join(rule.put_to)}" if rule.put_to else "",
        f"{rule.approvals_needed} approvals" if rule.approvals_needed > 1 else "",
        "not by the giver" if rule.not_the_giver else "",
        f"expires after {rule.expires_after_seconds} s" if rule.expires_after_seconds else "",
    ]
    return ", ".join(part for part in parts if part)
