"""Tokens of the embedded set-up, and the key that signs them."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from tutelage.token import KEY_FILE, TokenError, make_token, signing_key


def claims_of(token: str, key: Ed25519PrivateKey) -> dict[str, Any]:
    return jwt.decode(token, key.public_key(), algorithms=["EdDSA"], audience="tutelage", issuer="tutelage-embedded")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    first = signing_key(folder)
    second = signing_key(folder)

    assert first.private_bytes_raw() == second.private_bytes_raw()
    assert mode(folder) == 0o700
    assert mode(folder / KEY_FILE) == 0o600
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]
    assert (folder / KEY_FILE).read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_processes_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from tutelage.token import signing_key, key_id; sys.stdin.readline();"
        "print(key_id(signing_key(pathlib.Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    racing = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ids = {process.communicate(timeout=60)[0].strip() for process in racing}

    assert len(ids) == 1
    assert ids != {""}


def test_a_token_says_who(tmp_path: Path) -> None:
    key = signing_key(tmp_path)

    token = make_token(key, sub="gus", kind="person", roles=["uses", "supervises"], name="Gus", expires_in=60)

    claims = claims_of(token, key)
    raw = key.public_key().public_bytes_raw()
    assert jwt.get_unverified_header(token)["kid"] == hashlib.sha256(raw).hexdigest()[:16]
    assert claims["sub"] == "gus"
    assert claims["kind"] == "person"
    assert claims["roles"] == ["uses", "supervises"]
    assert claims["name"] == "Gus"
    assert claims["exp"] - claims["iat"] == 60
    assert abs(claims["iat"] - time.time()) < 60
    assert "tenant" not in claims


def test_each_token_has_an_id_of_its_own(tmp_path: Path) -> None:
    key = signing_key(tmp_path)
    tokens = [make_token(key, sub="gus", kind="person", roles=[]) for _ in range(2)]

    ids = {claims_of(token, key)["jti"] for token in tokens}

    assert len(ids) == 2


def test_a_tenant_is_named_and_claims_come_last(tmp_path: Path) -> None:
    key = signing_key(tmp_path)

    token = make_token(
        key,
        sub="gus",
        kind="agent",
        roles=["uses"],
        tenant="acme",
        claims={"acr": "high", "roles": ["audits"]},
    )

    claims = claims_of(token, key)
    assert claims["tenant"] == "acme"
    assert claims["acr"] == "high"
    assert claims["roles"] == ["audits"]
    assert claims["exp"] - claims["iat"] == 8 * 60 * 60


@pytest.mark.parametrize("sub", ["", "a b", "x" * 129, "gus\n"])
def test_an_id_that_is_none_is_refused(tmp_path: Path, sub: str) -> None:
    with pytest.raises(TokenError, match="sub"):
        make_token(signing_key(tmp_path), sub=sub, kind="person", roles=[])


def other_kind_of_key() -> bytes:
    key = generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("content", [b"", b"nonsense", other_kind_of_key()], ids=["empty", "nonsense", "rsa"])
def test_a_file_that_is_no_such_key_is_told_and_left(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY_FILE).write_bytes(content)

    with pytest.raises(TokenError, match=KEY_FILE):
        signing_key(tmp_path)

    assert (tmp_path / KEY_FILE).read_bytes() == content
