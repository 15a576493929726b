"""Two stores lead to the same place if provider, kind, configuration and credentials are the same."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import BoundStore, same_backend
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
)
from eso_wire.values import (
    CredentialKind,
    CredentialPath,
    Handshake,
    KindId,
    KindInfo,
    KindRole,
    Operation,
    SpecCondition,
)
from eso_wire.versions import CURRENT, SUPPORTED

GROUP = "aws.provider.external-secrets.io"
V2 = "secretstore.external-secrets.io/v2alpha1"
KEYS = (CredentialPath("/auth/secretRef/keySecretRef", CredentialKind.SECRET_KEY),)


def kind(name: str) -> KindInfo:
    condition = SpecCondition("/service", (name,))
    kind = KindId(GROUP, "v2alpha1", name)
    return KindInfo(
        kind, KindRole.STORE, frozenset(Operation), v1_provider_key="aws", credentials=KEYS, v1_when=condition
    )


HANDSHAKE = Handshake(CURRENT, SUPPORTED, "aws", "1", "i", (kind("SecretsManager"), kind("ParameterStore")))
AUTH = {"auth": {"secretRef": {"keySecretRef": {"name": "keys", "key": "key"}}}}
BLOCK: dict[str, Any] = {"service": "SecretsManager", "region": "eu", "secretsManager": {"force": True}, **AUTH}
OWN: dict[str, Any] = {"region": "eu", "deletion": {"force": True}, **AUTH}


def v1(block: dict[str, Any]) -> dict[str, Any]:
    return obj(
        "external-secrets.io/v1", "SecretStore", "s", "team-a", spec={"provider": {"aws": block}}, status=ready()
    )


def v2(spec: dict[str, Any], name: str = "SecretsManager") -> dict[str, Any]:
    inline = {"apiVersion": f"{GROUP}/v2alpha1", "kind": name, "spec": spec}
    return obj(V2, "SecretStore", "s", "team-a", spec={"providerConfig": {"inline": inline}})


async def bound(store: dict[str, Any], *services: dict[str, Any]) -> BoundStore:
    view = cluster(store, *services, handshakes=EveryConnection(HANDSHAKE))
    ref = StoreRef(api_version=store["apiVersion"], kind="SecretStore", name="s")
    resolved = resolve(ref, caller(kind="PushSecret"), need=ANYTHING, view=view, settings=SETTINGS)
    return await bind(resolved, NotedReads())


def service(name: str = "provider-aws") -> dict[str, Any]:
    kinds = ",".join(str(info.kind) for info in HANDSHAKE.kinds)
    return provider_service(name, CORE, kinds=kinds, v1_keys="aws")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(v1(BLOCK), v2(OWN), True, id="a v1 block and the provider's own spelling of it"),
        pytest.param(v2(OWN), v1(BLOCK), True, id="the other way round"),
        pytest.param(v2(OWN), v2({**OWN, "common": {"controller": ""}}), True, id="settings of the object alone"),
        pytest.param(v1(BLOCK), v2({**OWN, "region": "us"}), False, id="another region"),
        pytest.param(v1(BLOCK), v2({**OWN, "role": "admin"}), False, id="one more member"),
        pytest.param(v1(BLOCK), v2({**OWN, "deletion": {"force": False}}), False, id="a renamed member that differs"),
        pytest.param(v1(BLOCK), v2(OWN, "ParameterStore"), False, id="another service"),
        pytest.param(v1(BLOCK), v2({**OWN, "auth": {}}), False, id="other credentials"),
    ],
)
async def test_same_backend(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert same_backend(await bound(one, service()), await bound(other, service())) is same


async def test_another_provider_is_another_place() -> None:
    first, second = await bound(v2(OWN), service()), await bound(v2(OWN), service("provider-other"))

    assert not same_backend(first, second)
