"""Tokens of the embedded set-up: Ed25519 JWTs, signed with a key that lies in the data folder.

Whoever can read the key can be anybody, so it is its owner's alone (0600, in a folder 0700). The services
that use the same data folder trust it. Real deployments sign people in elsewhere and never use this.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ISSUER = "tutelage-embedded"
AUDIENCE = "tutelage"
KEY_FILE = "signing-key.pem"
EIGHT_HOURS = 8 * 60 * 60

Kind = Literal["person", "agent", "service"]

_ACCOUNT = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")


class TokenError(ValueError):
    """No token can be made of this. `str(error)` says why."""


def signing_key(data_dir: Path) -> Ed25519PrivateKey:
    """Load the data folder's key, or make folder and key.

    Of several processes that make it at once all get the first one's. Raises TokenError where the file is
    not an Ed25519 key, OSError where it cannot be read or made.
    """
    path = data_dir / KEY_FILE
    if not path.exists():
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_key(path)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise TokenError(f"the signing key {path} cannot be read: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise TokenError(f"the signing key {path} is not an Ed25519 key")
    return key


def make_token(
    key: Ed25519PrivateKey,
    *,
    sub: str,
    kind: Kind,
    roles: Iterable[str],
    tenant: str = "default",
    name: str = "",
    claims: Mapping[str, Any] | None = None,
    expires_in: float = EIGHT_HOURS,
) -> str:
    """Sign a token for the account `sub`; `claims` are merged last.

    Raises TokenError for an id that is none.
    """
    for what, value in (("sub", sub), ("tenant", tenant)):
        if not _ACCOUNT.fullmatch(value):
            raise TokenError(f"{what} must be 1 to 128 of letters, digits and _-.:@")
    now = int(time.time())
    payload: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": sub,
        "kind": kind,
        "roles": list(roles),
        "iat": now,
        "exp": int(now + expires_in),
        "jti": secrets.token_hex(16),
    }
    if tenant != "default":
        payload["tenant"] = tenant
    if name:
        payload["name"] = name
    payload |= claims or {}
    return jwt.encode(payload, key, algorithm="EdDSA", headers={"kid": key_id(key)})


def key_id(key: Ed25519PrivateKey) -> str:
    """Name the key: the first 16 hex digits of SHA-256 over the raw public key."""
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]


def _make_key(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(descriptor)
        # A link, not a rename: it fails where another process was first, whose key then holds.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
