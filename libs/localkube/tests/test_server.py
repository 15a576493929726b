"""The whole server over HTTPS: life cycle, credentials, statuses, forms, watches and limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

import localkube.api
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from kuberun.testing.rawapi import RawApi, raw_api
from localkube.server import LocalKube, UnsafeAddressError
from localkube.storage import StorageError

SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


def token_of(kube: LocalKube) -> str:
    token = yaml.safe_load(kube.kubeconfig_text)["users"][0]["user"]["token"]
    assert isinstance(token, str)
    return token


@asynccontextmanager
async def client_of(kube: LocalKube, folder: Path) -> AsyncIterator[RawApi]:
    authority = folder / "trusted.crt"
    authority.write_bytes(kube.certificates.authority_pem)
    async with raw_api(kube.url, token_of(kube), str(authority)) as admin:
        yield admin


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


# --- life -------------------------------------------------------------------------------------------------------------


async def test_a_restart_keeps_objects_token_and_authority(tmp_path: Path) -> None:
    async with LocalKube(tmp_path / "data") as first, client_of(first, tmp_path) as admin:
        await admin.post(CONFIG_MAPS, config_map("kept", a="b"))
        before = (token_of(first), first.certificates.authority_pem)

    async with LocalKube(tmp_path / "data") as second, client_of(second, tmp_path) as admin:
        found = await admin.get(f"{CONFIG_MAPS}/kept")

        assert found.body["data"] == {"a": "b"}
        assert (token_of(second), second.certificates.authority_pem) == before


async def test_requests_wait_from_listen_until_answer(tmp_path: Path) -> None:
    kube = LocalKube(tmp_path / "data")
    await kube.listen()
    try:
        async with client_of(kube, tmp_path) as admin:
            asked = asyncio.ensure_future(admin.get("/version"))
            reader, writer = await asyncio.open_connection("127.0.0.1", int(kube.url.rpartition(":")[2]))
            waited = not asked.done()

            await kube.start_serving()

            assert waited
            assert (await asked).status == 200
            writer.close()
            assert await reader.read() == b""
    finally:
        await kube.__aexit__(None, None, None)


async def test_a_second_server_leaves_the_keys_of_the_first_alone(tmp_path: Path) -> None:
    keys = tmp_path / "data" / "pki"
    async with LocalKube(tmp_path / "data"):
        before = {file.name: file.read_bytes() for file in keys.iterdir()}

        with pytest.raises(StorageError, match="in use by another server"):
            await LocalKube(tmp_path / "data", host="192.0.2.1", reachable_from_network=True).__aenter__()

        assert {file.name: file.read_bytes() for file in keys.iterdir()} == before


async def test_a_certificate_that_cannot_be_renewed_is_tried_again(tmp_path: Path) -> None:
    clock = VirtualClock()
    keys, away = tmp_path / "data" / "pki", tmp_path / "away"
    async with LocalKube(tmp_path / "data", clock=clock):
        keys.rename(away)
        keys.touch()
        await clock.advance(13 * 3600)
        keys.unlink()
        away.rename(keys)
        (keys / "server.crt").unlink()

        await clock.advance(13 * 3600)

        assert (keys / "server.crt").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])  # noqa: S104 - must be refused
def test_addresses_that_others_can_reach_are_refused(host: str) -> None:
    with pytest.raises(UnsafeAddressError):
        LocalKube(host=host)


async def test_ipv6_loopback_is_served(tmp_path: Path) -> None:
    async with LocalKube(host="::1") as kube, client_of(kube, tmp_path) as admin:
        assert (await admin.get("/version")).status == 200


async def test_stopping_ends_watches_with_a_complete_reply(tmp_path: Path) -> None:
    kube = LocalKube()
    async with kube, client_of(kube, tmp_path) as admin, admin.watch(CONFIG_MAPS) as frames:
        assert frames.status == 200

        stopping = asyncio.ensure_future(kube.__aexit__(None, None, None))
        frame = await frames.next_or_end()
        while frame is not None:
            frame = await frames.next_or_end()

        await stopping


async def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    ready, config = tmp_path / "ready.json", tmp_path / "kubeconfig"
    ready.write_text("stale")
    crd = tmp_path / "crd.yaml"
    crd.write_text(DEFINITION)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "localkube", "--data-dir", str(tmp_path / "data"), "--kubeconfig", str(config),
        "--ready-file", str(ready), "--crds", str(crd), stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
        while not (ready.exists() and ready.read_text().startswith("{")):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    said = json.loads(ready.read_text())

    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        code = await process.wait()

    server = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"]
    assert line.decode() == f"ready {config}\n"
    assert said == {"kubeconfig": str(config), "server": server}
    assert not ready.exists()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kubeconfig", "k"], "give either --data-dir or --memory"),
        (["--memory", "--kubeconfig", "k", "--host", "192.0.2.1"], "is not a loopback address"),
        (["--memory", "--kubeconfig", "k", "--crds", "nope.yaml"], "nope.yaml"),
    ],
    ids=["no storage", "an open address", "a missing file"],
)
def test_the_command_explains_what_is_wrong(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "localkube", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode in {1, 2}
    assert says in done.stderr
    assert "Traceback" not in done.stderr


REFUSED = [
    pytest.param(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: odd}\ndata: {key: CANARY-not-base64}\n",
        "Secret odd was refused: ",
        id="a Secret, without what it holds",
    ),
    pytest.param(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\ndata: {key: {nested: CANARY-of-a-wrong-type}}\n",
        ".data.key: expected string",
        id="a field of a wrong type, without what it holds",
    ),
    pytest.param(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Odd_Name}\n",
        'ConfigMap Odd_Name was refused: ConfigMap "Odd_Name" is invalid',
        id="any other object, in the server's words",
    ),
]


@pytest.mark.parametrize(("manifest", "says"), REFUSED)
def test_an_object_refused_at_the_start_is_named(tmp_path: Path, manifest: str, says: str) -> None:
    (tmp_path / "odd.yaml").write_text(manifest)

    done = subprocess.run(
        [sys.executable, "-m", "localkube", "--memory", "--kubeconfig", "kubeconfig", "--crds", "odd.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert says in done.stderr
    assert "CANARY" not in done.stderr + done.stdout


DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.server.example.com}
spec:
  group: server.example.com
  scope: Cluster
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}
"""


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_anybody_may_ask_after_health_and_version(admin: RawApi, path: str) -> None:
    assert (await admin.with_token("").get(path)).status == 200


async def test_nobody_else_gets_anything_without_credentials(admin: RawApi) -> None:
    reply = await admin.with_token("").get(SECRETS)

    assert reply.status == 403
    assert reply.message == (
        'secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" '
        'in the namespace "default"'
    )


async def test_wrong_credentials_are_unauthorized(admin: RawApi) -> None:
    reply = await admin.with_token("wrong").get(SECRETS)

    assert (reply.status, reply.reason) == (401, "Unauthorized")


async def test_a_client_certificate_of_ours_is_a_user(kube: LocalKube, tmp_path: Path) -> None:
    pair = kube.certificates.issue_client("eve", ["system:masters"], SystemClock().now())
    (tmp_path / "c.pem").write_bytes(pair.certificate + pair.key)
    (tmp_path / "ca.pem").write_bytes(kube.certificates.authority_pem)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "c.pem")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        review = f"{kube.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with session.post(
            review, json={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        ) as reply:
            body = await reply.json()

    assert body["status"]["userInfo"] == {"username": "eve", "groups": ["system:masters", "system:authenticated"]}


async def account_token(admin: RawApi, name: str) -> str:
    await admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    request = await admin.post(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {}})
    return str(request.body["status"]["token"])


def binding(role: str, name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }


RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


async def test_a_binding_takes_effect_at_once_and_ends_at_once(admin: RawApi) -> None:
    robot = admin.with_token(await account_token(admin, "robot"))

    before = (await robot.get(CONFIG_MAPS)).status
    await admin.post(f"{RBAC}/rolebindings", binding("view", "robot"))
    during = (await robot.get(CONFIG_MAPS)).status
    await admin.delete(f"{RBAC}/rolebindings/robot-view")
    after = (await robot.get(CONFIG_MAPS)).status

    assert (before, during, after) == (403, 200, 403)


async def test_a_user_cannot_grant_rights_that_they_do_not_have(admin: RawApi) -> None:
    robot = admin.with_token(await account_token(admin, "robot"))
    await admin.post(f"{RBAC}/rolebindings", binding("admin", "robot"))
    held = {"metadata": {"name": "held"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    more = {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}

    allowed = await robot.post(f"{RBAC}/roles", held)
    refused = await robot.post(f"{RBAC}/roles", more)
    bound = await robot.post(f"{RBAC}/rolebindings", binding("cluster-admin", "robot"))

    assert (allowed.status, refused.status, bound.status) == (201, 403, 403)
    assert "is attempting to grant RBAC permissions not currently held:" in refused.message
    assert '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}' in refused.message
    assert (await admin.get(f"{RBAC}/roles/more")).status == 404


async def test_acting_as_another_needs_leave(admin: RawApi) -> None:
    robot = admin.with_token(await account_token(admin, "robot"))
    headers = {"Impersonate-User": "bob"}

    own = await admin.send("GET", SECRETS, headers=headers)
    robots = await robot.send("GET", SECRETS, headers=headers)

    assert 'User "bob" cannot list resource "secrets"' in own.message
    assert 'cannot impersonate resource "users"' in robots.message


async def test_only_administrators_may_compact(admin: RawApi) -> None:
    robot = admin.with_token(await account_token(admin, "robot"))

    assert (await robot.send("POST", "/localkube/compact")).status == 403


# --- statuses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/apis/nope.io", 404),
        ("GET", "/apis/nope.io/v1/foos", 404),
        ("GET", "/api/v1/nopes", 404),
        ("GET", "/apis/apps/v9/deployments", 404),
        ("GET", "/api/v1/secrets/x", 404),
        ("GET", f"{SECRETS}/x/status", 404),
        ("GET", "/api/v1/namespaces/default/namespaces", 404),
        ("PUT", SECRETS, 405),
        ("POST", f"{SECRETS}/x", 405),
        ("POST", "/api/v1/secrets", 405),
        ("POST", "/version", 405),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
        ("PUT", "/apis/authentication.k8s.io/v1/tokenreviews/x", 404),
        ("OPTIONS", SECRETS, 405),
        ("HEAD", SECRETS, 405),
        ("DELETE", "/api/v1/namespaces", 405),
    ],
)
async def test_paths_and_methods_that_are_not_served_are_refused(
    admin: RawApi, method: str, path: str, status: int
) -> None:
    assert (await admin.send(method, path, {})).status == status


async def test_an_unacceptable_form_is_refused(admin: RawApi) -> None:
    assert (await admin.get(SECRETS, accept="application/vnd.kubernetes.protobuf")).status == 406
    assert (await admin.get(SECRETS, accept=METADATA)).status == 406


async def test_a_body_over_the_limit_is_refused(admin: RawApi) -> None:
    reply = await admin.post(CONFIG_MAPS, config_map("big", a="x" * (3 << 20)))

    assert (reply.status, reply.message) == (413, "Request entity too large: limit is 3145728")


async def test_too_many_requests_at_once_are_told_to_come_back(admin: RawApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localkube.api, "MAX_IN_FLIGHT", 0)

    reply = await admin.get(SECRETS)

    assert (reply.status, reply.reason, reply.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    assert (await admin.get("/healthz")).status == 200


async def test_a_request_that_takes_too_long_is_given_up(admin: RawApi) -> None:
    reply = await admin.post(CONFIG_MAPS, config_map("late"), timeout="1ns")

    assert (reply.status, reply.reason) == (504, "Timeout")


async def test_warnings_for_unknown_fields_and_deprecated_versions(admin: RawApi) -> None:
    await admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(DEFINITION))
    things = "/apis/server.example.com/v1beta1/things"
    thing = {"apiVersion": "server.example.com/v1beta1", "kind": "Thing", "metadata": {"name": "t"}, "extra": 1}

    made = await admin.post(things, thing)
    listed = await admin.get(things)
    strict = await admin.post(things, {**thing, "metadata": {"name": "s"}}, fieldValidation="Strict")

    deprecated = "server.example.com/v1beta1 Thing is deprecated; use server.example.com/v1 Thing"
    assert (made.status, made.warnings) == (201, [deprecated, 'unknown field "extra"'])
    assert listed.warnings == [deprecated]
    assert (strict.status, 'unknown field "extra"' in strict.message) == (400, True)


async def test_fields_that_come_twice_are_warned_about_or_refused(admin: RawApi) -> None:
    body = '{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"}}'

    warned = await admin.post(CONFIG_MAPS, body.replace("NAME", "warned"))
    refused = await admin.post(CONFIG_MAPS, body.replace("NAME", "refused"), fieldValidation="Strict")

    assert (warned.status, warned.warnings, warned.body["data"]) == (201, ['duplicate field "data.a"'], {"a": "2"})
    assert (refused.status, 'duplicate field "data.a"' in refused.message) == (400, True)


# --- what helps to see in --------------------------------------------------------------------------------------------


async def test_health_in_detail(admin: RawApi) -> None:
    verbose = await admin.get("/readyz", verbose="")

    assert "[+]ping ok" in verbose.body
    assert verbose.body.endswith("readyz check passed\n")
    assert (await admin.get("/readyz/ping")).body == "ok"
    assert (await admin.get("/readyz/nope")).status == 404


async def test_tokens_can_be_checked_by_others(admin: RawApi) -> None:
    configuration = (await admin.get("/.well-known/openid-configuration")).body
    keys = (await admin.get("/openid/v1/jwks", accept="application/jwk-set+json")).body["keys"]

    assert configuration["issuer"] == "https://kubernetes.default.svc"
    assert (keys[0]["kty"], keys[0]["alg"]) == ("EC", "ES256")


async def test_a_defect_is_reported_without_what_it_knows(
    kube: LocalKube, admin: RawApi, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        local_secret = "CANARY"
        raise RuntimeError(local_secret)

    monkeypatch.setattr(kube.cluster, "get", broken)

    reply = await admin.get(f"{SECRETS}/x")

    captured = capfd.readouterr()
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert "request failed" in captured.out + captured.err
    assert "CANARY" not in captured.out + captured.err + str(reply.body)


async def test_no_secret_reaches_the_log(kube: LocalKube, admin: RawApi, capfd: pytest.CaptureFixture[str]) -> None:
    canary = "CANARY-" + os.urandom(8).hex()

    await admin.post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": canary}})
    await admin.post(SECRETS, f'{{"stringData": {{"k": "{canary}"')
    refused = await admin.post(SECRETS, {"metadata": {"name": "s2"}, "data": {"k": canary}})

    captured = capfd.readouterr()
    assert canary not in captured.out + captured.err + str(refused.body)
    assert token_of(kube) not in captured.out + captured.err
