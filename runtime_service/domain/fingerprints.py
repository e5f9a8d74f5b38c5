"""What a yes covers, as one hash: published with vectors in docs/fingerprints.md.

Taken when a person is asked, and again as the tool is about to start. Where the two differ, the yes was for
something else, and the call is asked anew (R3.5).
"""

from dataclasses import dataclass
from hashlib import sha256

from runtime_service.domain import canonical_json
from runtime_service.domain.addresses import Address
from runtime_service.domain.effects import Effects
from runtime_service.domain.length_prefix import lp
from runtime_service.domain.rules import ApprovalRule, rule_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintFields:
    """What the hash is taken over, in its order. `turn_id` is the turn whose call it is (R7)."""

    turn_id: str
    address: Address
    tool: str
    declaration_hash: str
    input_json: str
    effects: Effects
    rule: ApprovalRule
    agent_version: str
    skill_version: str
    instruction_set: int
    block_sha256: str


def fingerprint(fields: FingerprintFields) -> str:
    """Hash what a yes covers, in hex. The input counts to the letter as received, the rule as saved."""
    covered = lp(
        fields.turn_id,
        fields.address,
        fields.tool,
        fields.declaration_hash,
        fields.input_json,
        fields.effects.value,
        canonical_json.encode(rule_fields(fields.rule)),
        fields.agent_version,
        fields.skill_version,
        fields.instruction_set,
        fields.block_sha256,
    )
    return sha256(b"tutelage.fingerprint.v1\0" + covered).hexdigest()
