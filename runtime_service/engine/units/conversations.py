"""Conversations are opened, and who is asked in them changes (`runtime.md` R9, R10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime_service.domain.ledger import Ledger, Needs
from runtime_service.domain.principals import Principal
from runtime_service.domain.problems import NoSuchThing, RequestIdReused
from runtime_service.domain.rules import SettingInForce
from runtime_service.domain.turns import Conversation, ConversationKey


@dataclass(frozen=True, slots=True)
class OpenConversation:
    """Write a new conversation, or return the one of that id.

    Raises `RequestIdReused` for an id of another agent, or of a conversation that the caller may not see (settled 16).
    """

    key: ConversationKey
    agent: str
    approve: SettingInForce | None
    opened_by: Principal
    sees_all: bool

    @property
    def needs(self) -> Needs:
        return Needs(conversations=(self.key,))

    def run(self, ledger: Ledger) -> Conversation:
        known = ledger.conversations.get(self.key)
        if known is not None:
            theirs = self.sees_all or known.opened_by.id == self.opened_by.id
            if known.agent != self.agent or not theirs:
                raise RequestIdReused(self.key.id)
            return known
        opened = Conversation(
            id=self.key.id,
            tenant=self.key.tenant,
            agent=self.agent,
            approve=self.approve,
            opened_by=self.opened_by,
            create_time=ledger.now,
        )
        ledger.conversations.put(self.key, opened)
        return opened


@dataclass(frozen=True, slots=True)
class SetApproval:
    """Change who is asked in the turns to come. What was asked stays asked (R2.4)."""

    key: ConversationKey
    approve: SettingInForce | None

    @property
    def needs(self) -> Needs:
        return Needs(conversations=(self.key,))

    def run(self, ledger: Ledger) -> Conversation:
        conversation = ledger.conversations.get(self.key)
        if conversation is None:
            raise NoSuchThing("conversation", self.key.id)
        changed = replace(conversation, approve=self.approve)
        ledger.conversations.put(self.key, changed)
        return changed
