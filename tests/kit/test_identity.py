"""Who a token makes its bearer, and that nobody gets in without one."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tutelage.runtime.v1 import turns_pb2, turns_pb2_grpc

from service_kit import identity
from service_kit.errors import NotSignedIn, SetupProblem
from service_kit.identity import TokenKeys, current_caller, embedded_issuer, jwks_issuer, key_id_of
from tests.kit.conftest import Serving, SignIn, Told, bearer, claims

KEYCLOAK = "https://sign-in.example"


class Turns(turns_pb2_grpc.TurnServiceServicer):
    """Tells callers who they are."""

    async def GetTurn(self, request: Any, context: Any) -> turns_pb2.GetTurnResponse:
        return turns_pb2.GetTurnResponse(turn=turns_pb2.Turn(id=current_caller().id))

    async def WatchTurn(self, request: Any, context: Any) -> AsyncIterator[turns_pb2.WatchTurnResponse]:
        for _ in range(3):
            yield turns_pb2.WatchTurnResponse(event=turns_pb2.TurnEvent(cursor=current_caller().id))


SERVICES = [(turns_pb2_grpc.add_TurnServiceServicer_to_server, Turns())]  # type: ignore[abstract]


def test_a_token_tells_all_of_its_bearer(keys: TokenKeys, sign_in: SignIn, signing_key: Ed25519PrivateKey) -> None:
    exp = int(datetime.now(UTC).timestamp()) + 60

    caller = keys.verify(sign_in(exp=exp, tenant="north", auth_time=1_700_000_000, acr="mfa"))

    assert (
        caller.id,
        caller.kind,
        caller.display_name,
        caller.on_behalf_of,
    ) == ("ada", "PERSON", "Ada", "")
    assert frozenset({"uses", "supervises"}) == caller.roles
    assert (caller.tenant, caller.acr) == ("north", "mfa")
    assert datetime.fromtimestamp(1_700_000_000, UTC) == caller.auth_time
    assert datetime.fromtimestamp(exp, UTC) == caller.expires_at
    assert ("tutelage-embedded", key_id_of(signing_key.public_key())) == (caller.issuer, caller.key_id)
    assert len(caller.token_sha256) == 64
    assert caller.is_person()


def test_a_token_that_says_little_leaves_the_rest_unsaid(keys: TokenKeys, sign_in: SignIn) -> None:
    caller = keys.verify(sign_in(kind=None, name=None, roles=None))

    assert ("UNSPECIFIED", "", frozenset(), "default", None) == (
        caller.kind,
        caller.display_name,
        caller.roles,
        caller.tenant,
        caller.auth_time,
    )
    assert not caller.is_person()


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": None},
        {"exp": 1_700_000_000},
        {"exp": 1e300},
        {"exp": "tomorrow"},
        {"nbf": 4_000_000_000},
        {"iat": 4_000_000_000},
        {"iss": "somebody"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "a\n"},
        {"sub": "a b"},
        {"sub": "a" * 129},
        {"tenant": "../x"},
        {"roles": "uses"},
        {"roles": [1]},
        {"name": 7},
        {"auth_time": "now"},
        {"auth_time": 1e300},
        {"act": {}},
        {"act": "runtime"},
    ],
    ids=str,
)
def test_a_token_with_a_claim_that_does_not_hold_signs_nobody_in(
    changes: dict[str, Any], keys: TokenKeys, sign_in: SignIn
) -> None:
    with pytest.raises(NotSignedIn):
        keys.verify(sign_in(**changes))


def test_a_null_act_signs_nobody_in(keys: TokenKeys, signing_key: Ed25519PrivateKey) -> None:
    with pytest.raises(NotSignedIn):
        keys.verify(jwt.encode(claims() | {"act": None}, signing_key, algorithm="EdDSA"))


def test_only_the_right_key_and_the_one_algorithm_sign_in(keys: TokenKeys, signing_key: Ed25519PrivateKey) -> None:
    public = signing_key.public_key().public_bytes_raw().hex()
    forged = [
        jwt.encode(claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA"),
        jwt.encode(claims(), public, algorithm="HS256"),
        jwt.encode(claims(), "", algorithm="none"),
        jwt.encode(claims(), signing_key, algorithm="EdDSA", headers={"kid": "0" * 16}),
        jwt.encode(claims(), signing_key, algorithm="EdDSA")[:-3] + "abc",
    ]
    for token in forged:
        with pytest.raises(NotSignedIn):
            keys.verify(token)


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "é.é.é", "[.[.[", "." * 100])
def test_what_is_no_token_signs_nobody_in(token: str, keys: TokenKeys) -> None:
    with pytest.raises(NotSignedIn):
        keys.verify(token)


def test_json_of_any_depth_signs_nobody_in(keys: TokenKeys) -> None:
    """Before its signature is checked a token is anybody's: it must not be able to make a defect."""
    deep = base64.urlsafe_b64encode(b"[" * 5_000).decode().rstrip("=")
    header = base64.urlsafe_b64encode(b'{"alg":"EdDSA"}').decode().rstrip("=")
    for token in (f"{header}.{deep}.AA", f"{deep}.{deep}.AA"):
        with pytest.raises(NotSignedIn):
            keys.verify(token)


def test_a_token_that_acts_for_somebody_is_never_a_persons(keys: TokenKeys, sign_in: SignIn) -> None:
    """T2.2: its account is the actor of now, the outermost `act`; the person is whom it acts for."""
    program = keys.verify(sign_in(act={"sub": "gateway", "act": {"sub": "earlier"}}))
    agent = keys.verify(sign_in(act={"sub": "support", "kind": "agent"}))

    assert (program.id, program.on_behalf_of, program.kind) == ("gateway", "ada", "SERVICE")
    assert (agent.id, agent.on_behalf_of, agent.kind) == ("support", "ada", "AGENT")


def test_an_act_claim_at_any_depth_makes_it_no_persons(keys: TokenKeys, sign_in: SignIn) -> None:
    hidden = keys.verify(sign_in(context=[{"exchange": {"act": {"sub": "gateway"}}}]))

    assert hidden.kind == "SERVICE"


def jwks_file(folder: Path, key: Ed25519PrivateKey) -> Path:
    jwk = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key()))
    file = folder / "jwks.json"
    file.write_text(json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, jwk | {"kid": "k1"}]}))
    return file


def test_another_issuers_person_is_one_only_at_a_client_that_people_sit_at(tmp_path: Path, keys: TokenKeys) -> None:
    """Settled 3 and 44."""
    theirs = Ed25519PrivateKey.generate()
    issuer = jwks_issuer(
        jwks_file(tmp_path, theirs),
        issuer=KEYCLOAK,
        audience="tutelage",
        interactive_clients=frozenset({"console"}),
    )
    both = TokenKeys((*keys.issuers, issuer))

    def kind(**changes: Any) -> str:
        token = jwt.encode(claims(iss=KEYCLOAK, **changes), theirs, algorithm="EdDSA", headers={"kid": "k1"})
        return both.verify(token).kind

    assert kind(azp="console") == "PERSON"
    assert kind(client_id="console") == "PERSON"
    assert kind() == "UNSPECIFIED"
    assert kind(azp="batch-job") == "UNSPECIFIED"
    assert kind(azp="console", client_id="batch-job") == "UNSPECIFIED"
    assert kind(azp=["console"]) == "UNSPECIFIED"
    assert kind(kind="agent") == "AGENT"


def test_an_issuer_cannot_speak_for_another(tmp_path: Path, signing_key: Ed25519PrivateKey) -> None:
    theirs = Ed25519PrivateKey.generate()
    both = TokenKeys(
        (
            embedded_issuer(signing_key),
            jwks_issuer(
                jwks_file(tmp_path, theirs),
                issuer=KEYCLOAK,
                audience="tutelage",
                interactive_clients=frozenset(),
            ),
        )
    )

    with pytest.raises(NotSignedIn):
        both.verify(jwt.encode(claims(), theirs, algorithm="EdDSA", headers={"kid": "k1"}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": [{"kty": "RSA"}]}', '{"keys": [1]}'])
def test_a_key_set_without_a_key_to_trust_is_a_problem_of_the_set_up(text: str, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)

    with pytest.raises(SetupProblem):
        jwks_issuer(file, issuer=KEYCLOAK, audience="tutelage", interactive_clients=frozenset())


def test_no_more_than_so_many_tokens_are_remembered(
    keys: TokenKeys, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MOST_REMEMBERED", 3)

    tokens = [sign_in(sub=f"account{n}") for n in range(10)]
    first = [keys.verify(token).id for token in tokens]
    again = [keys.verify(token).id for token in tokens]

    assert first == again == [f"account{n}" for n in range(10)]
    assert len(keys._verified) == 3


async def refusal(call: Any) -> Told:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return await Told.by(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", "TOKEN")],
        [("authorization", "Basic TOKEN")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer TOKEN"), ("authorization", "Bearer TOKEN")],
        [("tutelage-account", "ada"), ("x-forwarded-user", "ada")],
    ],
    ids=["none", "no scheme", "another scheme", "empty", "two", "other keys"],
)
async def test_without_exactly_one_bearer_token_no_call(
    metadata: list[tuple[str, str]], serving: Serving, sign_in: SignIn
) -> None:
    """Settled 2: also one good token twice is refused, and keys that a caller sends are no identity."""
    sent = [(key, value.replace("TOKEN", sign_in())) for key, value in metadata]
    async with serving(SERVICES) as served:
        told = await refusal(served.turns.GetTurn(turns_pb2.GetTurnRequest(), metadata=sent))
        stream = served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=sent)
        streams = await refusal(anext(aiter(stream)))

    assert (told.code, told.reason) == (grpc.StatusCode.UNAUTHENTICATED, "NOT_SIGNED_IN")
    assert streams.reason == "NOT_SIGNED_IN"


async def test_a_handler_knows_its_caller_from_first_to_last(serving: Serving, sign_in: SignIn) -> None:
    """Each RPC has its own caller, at every step of a stream, beside others' calls."""
    async with serving(SERVICES) as served:
        ada = aiter(served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in(sub="ada"))))
        ben = aiter(served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in(sub="ben"))))
        seen = [(await anext(ada)).event.cursor + (await anext(ben)).event.cursor for _ in range(3)]
        answer = await served.turns.GetTurn(
            turns_pb2.GetTurnRequest(), metadata=[*bearer(sign_in(sub="cy")), ("tutelage-account", "ada")]
        )

    assert seen == ["adaben"] * 3
    assert answer.turn.id == "cy"


async def test_health_and_reflection_answer_without_a_token(serving: Serving) -> None:
    """Settled 29."""
    async with serving(SERVICES) as served:
        health = await health_pb2_grpc.HealthStub(served.channel).Check(health_pb2.HealthCheckRequest())
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo(iter([asked]))
        listed = await call.read()

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    names = {service.name for service in listed.list_services_response.service}
    assert {"tutelage.runtime.v1.TurnService", "grpc.health.v1.Health"} <= names


def test_outside_a_call_nobody_calls() -> None:
    with pytest.raises(NotSignedIn):
        current_caller()
