"""Tokens of service accounts: requests, claims, verification, and when they stop to be good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.clock import VirtualClock
from localkube.cluster import Cluster
from localkube.cluster.tokens import ISSUER
from localkube.model import WriteOptions
from localkube.storage import StorageError
from localkube.testing.verbs import ADMIN, Verbs, manifest, refusal


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def robot(clock: VirtualClock) -> AsyncIterator[Verbs]:
    """A cluster with a service account `robot`, on virtual time."""
    async with Cluster(None, clock=clock) as cluster:
        verbs = Verbs(cluster)
        await verbs.create("serviceaccounts", manifest(verbs.kind("serviceaccounts"), "robot"))
        yield verbs


async def request(verbs: Verbs, name: str = "robot", **spec: Any) -> JsonObject:
    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    written = await verbs.cluster.create(
        verbs.kind("serviceaccounts"), "default", obj, WriteOptions(ADMIN), name=name, subresource="token"
    )
    return written.object


async def token(verbs: Verbs, **spec: Any) -> str:
    return str((await request(verbs, **spec))["status"]["token"])


async def test_a_token_says_whose_it_is(robot: Verbs) -> None:
    answer = await request(robot)

    claims = jwt.decode(answer["status"]["token"], options={"verify_signature": False})
    uid = (await robot.get("serviceaccounts", "robot"))["metadata"]["uid"]
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert (claims["iss"], claims["aud"]) == (ISSUER, [ISSUER])
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["kubernetes.io"] == {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}}
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    assert answer["status"]["expirationTimestamp"] == "2030-01-01T01:00:00Z"


async def test_it_verifies_as_the_service_account(robot: Verbs) -> None:
    user = robot.cluster.tokens.verify(await token(robot))

    assert user is not None
    assert user.name == "system:serviceaccount:default:robot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")


async def test_a_token_for_others_is_not_for_this_server(robot: Verbs) -> None:
    other = await token(robot, audiences=["vault", "aws"])

    reviewed = robot.cluster.tokens.review(other, ["aws", "gcp"])

    assert robot.cluster.tokens.verify(other) is None
    assert reviewed is not None
    assert reviewed.audiences == ("aws",)


async def test_it_expires(robot: Verbs, clock: VirtualClock) -> None:
    text = await token(robot, expirationSeconds=600)

    await clock.advance(599)
    before = robot.cluster.tokens.verify(text)
    await clock.advance(1)

    assert before is not None
    assert robot.cluster.tokens.verify(text) is None


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text[:-6] + "AAAAAA", id="another signature"),
        pytest.param(lambda text: "x" + text, id="not base64 of JSON"),
        pytest.param(lambda _: "", id="nothing"),
        pytest.param(lambda _: jwt.encode({"sub": "x"}, "k" * 32, algorithm="HS256"), id="another algorithm"),
        pytest.param(lambda text: ".".join(["eyJhbGciOiJub25lIn0", text.split(".")[1], ""]), id="no signature at all"),
    ],
)
async def test_a_token_that_was_tampered_with_authenticates_no_user(robot: Verbs, spoil: Any) -> None:
    assert robot.cluster.tokens.verify(spoil(await token(robot))) is None


async def test_a_token_dies_with_its_account_even_if_another_gets_the_name(robot: Verbs) -> None:
    text = await token(robot)
    await robot.delete("serviceaccounts", "robot")
    await robot.create("serviceaccounts", manifest(robot.kind("serviceaccounts"), "robot"))

    assert robot.cluster.tokens.verify(text) is None


async def test_a_bound_token_dies_with_its_secret(robot: Verbs) -> None:
    await robot.create("secrets", manifest(robot.kind("secrets"), "bound"))
    text = await token(robot, boundObjectRef={"apiVersion": "v1", "kind": "Secret", "name": "bound"})
    good = robot.cluster.tokens.verify(text)

    await robot.delete("secrets", "bound")

    assert good is not None
    assert robot.cluster.tokens.verify(text) is None


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        pytest.param(
            {"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes", id="too short"
        ),
        pytest.param(
            {"expirationSeconds": 2**33}, 422, "may not specify a duration larger than 2^32 seconds", id="too long"
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "nope"}},
            404,
            'secrets "nope" not found',
            id="bound to nothing",
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
            id="bound to something else",
        ),
    ],
)
async def test_refusals(robot: Verbs, spec: JsonObject, code: int, text: str) -> None:
    error = await refusal(request(robot, **spec))

    assert error.code == code
    assert text in error.message


async def test_an_account_that_does_not_exist_gets_no_token(robot: Verbs) -> None:
    error = await refusal(request(robot, "absent"))

    assert (error.code, error.message) == (404, 'serviceaccounts "absent" not found')


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        await verbs.create("serviceaccounts", manifest(verbs.kind("serviceaccounts"), "robot"))
        text = await token(verbs)

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        assert cluster.tokens.verify(text) is not None


async def test_a_broken_signing_key_is_a_clear_error(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()):
        pass
    (tmp_path / "service-account.key").write_text("nonsense")

    with pytest.raises(StorageError, match=r"signing key .* cannot be read"):
        async with Cluster(tmp_path, clock=SystemClock()):
            pass
