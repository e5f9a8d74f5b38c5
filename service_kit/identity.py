"""Who calls: from a verified token alone, never from a request field or other metadata.

Tokens are JWTs signed with Ed25519. The embedded set-up signs its own with the data folder's key; a JWKS
file trusts another issuer's. A `Caller` is what a token proved, whole.

Invariants: a token that acts for somebody (an `act` claim at any depth) is never a person's (T2.2); nor is
one that another issuer gave to a client that no person sits at (settled 3, 44). No token, no call, but for
health and reflection (settled 29).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from service_kit.errors import Continuation, Handler, NotSignedIn, SetupProblem

EMBEDDED_ISSUER = "tutelage-embedded"
EMBEDDED_AUDIENCE = "tutelage"
CLOCK_SKEW = timedelta(seconds=5)
MOST_REMEMBERED = 4_096

# `role:NAME` names a role wherever accounts are listed: no account may look like one.
_ACCOUNT = re.compile(r"(?!role:)[A-Za-z0-9_.:@-]{1,128}")
_KINDS = {"person": "PERSON", "agent": "AGENT", "service": "SERVICE"}
_OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.v1.", "/grpc.reflection.v1alpha.")
# What a token that is none makes its reader raise: the library's own, and what JSON of any depth and
# numbers of any size add.
_UNREADABLE = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Caller:
    """One account, as its token proved it."""

    id: str
    kind: str  # the name of a PrincipalKind, without its prefix
    display_name: str
    on_behalf_of: str
    roles: frozenset[str]
    tenant: str
    issuer: str
    key_id: str
    token_sha256: str
    auth_time: datetime | None
    acr: str
    expires_at: datetime

    def is_person(self) -> bool:
        """Say whether a signed-in person calls, and nobody on their behalf."""
        return self.kind == "PERSON"


@dataclass(frozen=True, slots=True)
class Issuer:
    """Somebody whose tokens are trusted."""

    name: str
    audience: str
    keys: Mapping[str, Ed25519PublicKey]
    # The clients that people sit at. None: every one.
    interactive_clients: frozenset[str] | None = frozenset()


def embedded_issuer(signing_key: Ed25519PrivateKey) -> Issuer:
    """Trust the tokens that `tutelage token` signs with the data folder's key."""
    key = signing_key.public_key()
    return Issuer(EMBEDDED_ISSUER, EMBEDDED_AUDIENCE, {key_id_of(key): key}, interactive_clients=None)


def jwks_issuer(file: Path, *, issuer: str, audience: str, interactive_clients: frozenset[str]) -> Issuer:
    """Trust another issuer's Ed25519 keys. Keys of other kinds in the file are passed over.

    Raises `SetupProblem` where none is left.
    """
    try:
        listed = json.loads(file.read_text())["keys"]
        found = [jwk for jwk in listed if jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519"]
        keys = [(jwk.get("kid"), jwt.PyJWK(jwk, algorithm="EdDSA").key) for jwk in found]
    except (OSError, KeyError, AttributeError, *_UNREADABLE) as problem:
        raise SetupProblem(f"{file} cannot be read as a JSON Web Key Set: {problem}") from None
    if not keys:
        raise SetupProblem(f"{file} has no Ed25519 key; tokens are verified with those alone.")
    return Issuer(issuer, audience, {kid or key_id_of(key): key for kid, key in keys}, interactive_clients)


def key_id_of(key: Ed25519PublicKey) -> str:
    """Name a key by the first 16 hex digits of SHA-256 over its raw bytes."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


@dataclass(slots=True)
class TokenKeys:
    """The issuers that are trusted, and what their tokens were found to say."""

    issuers: tuple[Issuer, ...]
    _verified: dict[str, Caller] = field(default_factory=dict)

    def verify(self, token: str) -> Caller:
        """Say who signed in with this token. Raises `NotSignedIn`, with a sentence that says why.

        Remembers tokens that verified, by their hash, so that only the first call of each pays.
        """
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        caller = self._verified.get(digest)
        if caller is None:
            try:
                caller = self._caller_of(token, digest)
            except jwt.ExpiredSignatureError:
                raise NotSignedIn("The token has expired. Sign in again.") from None
            except _UNREADABLE as problem:
                raise NotSignedIn(f"The token does not verify: {_plain(problem)}.") from None
            while len(self._verified) >= MOST_REMEMBERED:
                del self._verified[next(iter(self._verified))]
            self._verified[digest] = caller
        if caller.expires_at <= datetime.now(UTC):
            self._verified.pop(digest, None)
            raise NotSignedIn("The token has expired. Sign in again.")
        return caller

    def _caller_of(self, token: str, digest: str) -> Caller:
        unproven = jwt.decode_complete(token, options={"verify_signature": False})
        issuer = self._issuer(unproven["payload"].get("iss"))
        key_id, key = _key_of(issuer, unproven["header"].get("kid"))
        claims = jwt.decode(
            token,
            key,
            algorithms=["EdDSA"],
            audience=issuer.audience,
            issuer=issuer.name,
            leeway=CLOCK_SKEW,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        account, on_behalf_of, kind = _who(claims, issuer)
        return Caller(
            id=account,
            kind=kind,
            display_name=_text(claims, "name"),
            on_behalf_of=on_behalf_of,
            roles=_roles(claims),
            tenant=_account(claims.get("tenant", "default"), "tenant"),
            issuer=issuer.name,
            key_id=key_id,
            token_sha256=digest,
            auth_time=_moment(claims["auth_time"]) if claims.get("auth_time") is not None else None,
            acr=_text(claims, "acr"),
            expires_at=_moment(claims["exp"]),
        )

    def _issuer(self, name: object) -> Issuer:
        for issuer in self.issuers:
            if issuer.name == name:
                return issuer
        raise NotSignedIn("The token is not of an issuer that this service trusts.")


def _plain(problem: Exception) -> str:
    return str(problem).rstrip(".") if isinstance(problem, jwt.PyJWTError) else "it cannot be read"


def _key_of(issuer: Issuer, key_id: object) -> tuple[str, Ed25519PublicKey]:
    if key_id is None and len(issuer.keys) == 1:
        return next(iter(issuer.keys.items()))
    if not isinstance(key_id, str) or key_id not in issuer.keys:
        raise NotSignedIn("The token was signed with a key that this service does not know.")
    return key_id, issuer.keys[key_id]


def _who(claims: Mapping[str, Any], issuer: Issuer) -> tuple[str, str, str]:
    """Tell the account, whom it acts for, and its kind."""
    subject = _account(claims["sub"], "sub")
    kind = _KINDS.get(_text(claims, "kind"), "UNSPECIFIED")
    if "act" in claims:
        actor = claims["act"] if isinstance(claims["act"], dict) else {}
        kind = "AGENT" if actor.get("kind") == "agent" else "SERVICE"
        return _account(actor.get("sub"), "act.sub"), subject, kind
    if kind == "PERSON":
        if _acts(claims):
            kind = "SERVICE"
        elif not _at_a_persons_client(claims, issuer):
            kind = "UNSPECIFIED"
    return subject, "", kind


def _acts(value: object) -> bool:
    if isinstance(value, dict):
        return "act" in value or any(_acts(inner) for inner in value.values())
    return isinstance(value, list) and any(_acts(inner) for inner in value)


def _at_a_persons_client(claims: Mapping[str, Any], issuer: Issuer) -> bool:
    if issuer.interactive_clients is None:
        return True
    clients = [claims[name] for name in ("azp", "client_id") if name in claims]
    return bool(clients) and all(isinstance(client, str) and client in issuer.interactive_clients for client in clients)


def is_account(text: str) -> bool:
    """Say whether a text can be an account's id."""
    return _ACCOUNT.fullmatch(text) is not None


def _account(value: object, claim: str) -> str:
    if not isinstance(value, str) or not is_account(value):
        raise NotSignedIn(f"The token's {claim} must be 1 to 128 of letters, digits and _-.:@, and no role's.")
    return value


def _text(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim) or ""
    if not isinstance(value, str):
        raise NotSignedIn(f"The token's {claim} must be text.")
    return value


def _roles(claims: Mapping[str, Any]) -> frozenset[str]:
    roles = claims.get("roles") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise NotSignedIn("The token's roles must be a list of texts.")
    return frozenset(roles)


def _moment(seconds: Any) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_caller: ContextVar[Caller] = ContextVar("caller")


def current_caller() -> Caller:
    """Say who makes the call that this task serves. Raises `NotSignedIn` outside one."""
    try:
        return _caller.get()
    except LookupError:
        raise NotSignedIn from None


class IdentityInterceptor(grpc.aio.ServerInterceptor):
    """Lets nobody in without exactly one bearer token (settled 2). Stands inside `ErrorsInterceptor`."""

    def __init__(self, keys: TokenKeys) -> None:
        self._keys = keys

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not handler_call_details.method.startswith(_OPEN):
            # Never reset: every RPC has a task and a context of its own, and a generator may be closed
            # in another.
            _caller.set(self._keys.verify(_bearer_of(handler_call_details.invocation_metadata)))
        return await continuation(handler_call_details)


def _bearer_of(metadata: Any) -> str:
    values = [value for key, value in metadata if key == "authorization"]
    if len(values) != 1:
        raise NotSignedIn("This call needs one token, in the metadata `authorization: Bearer TOKEN`.")
    scheme, _, token = str(values[0]).partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotSignedIn("The authorization metadata must read `Bearer TOKEN`.")
    return token.strip()
