"""The controller class of a store or generator, as its users see it: the resolver uses the same word."""

from typing import Any

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.externalsecret.snapshot import controller_classes
from eso_operator.controllers.pushsecret.snapshot import StoreChooser
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.clusters import ANYTHING, SETTINGS, caller, cluster, obj
from eso_testkit.operator.pushsecrets import push_secret
from kubebase.meta import JsonObject

TEAM = "team-a"
OWN_KIND = "provider.secretstore.example.com/v1"
GENERATORS = "generators.external-secrets.io/v1alpha1"
OTHER = {"controller": "another"}
OWN: Any = StoreRef(api_version=OWN_KIND, kind="Vault", name="one")


def generated(kind: str) -> Any:
    return GeneratorRef(kind=kind, name="one")


@pytest.mark.parametrize(
    ("ref", "document"),
    [
        pytest.param(
            StoreRef(name="one"),
            obj("external-secrets.io/v1", "SecretStore", "one", TEAM, spec={"provider": {"fake": {}}, **OTHER}),
            id="a v1 store",
        ),
        pytest.param(OWN, obj(OWN_KIND, "Vault", "one", TEAM, spec={"common": OTHER}), id="the own kind of a provider"),
        pytest.param(
            generated("Password"), obj(GENERATORS, "Password", "one", TEAM, spec={**OTHER}), id="a v1alpha1 generator"
        ),
        pytest.param(
            generated("ClusterGenerator"),
            obj(
                GENERATORS,
                "ClusterGenerator",
                "one",
                spec={"kind": "Webhook", "generator": {"webhookSpec": {"url": "http://x", **OTHER}}},
            ),
            id="a generator in a ClusterGenerator",
        ),
    ],
)
def test_a_store_of_another_controller_class_is_unmanaged(ref: StoreRef | GeneratorRef, document: JsonObject) -> None:
    view = cluster(document)

    with pytest.raises(ResolutionError) as caught:
        resolve(ref, caller(TEAM), need=ANYTHING, view=view, settings=SETTINGS)

    assert caught.value.reason is Reason.UNMANAGED
    assert controller_classes(view)(ref, TEAM) == "another"


def test_the_class_of_an_invalid_store_is_found() -> None:
    broken = obj("external-secrets.io/v1", "SecretStore", "one", TEAM, spec={"provider": {}, **OTHER})

    assert controller_classes(cluster(broken))(StoreRef(name="one"), TEAM) == "another"


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        pytest.param({"common": OTHER}, [], id="another class"),
        pytest.param({"controller": "https://vault"}, ["one"], id="a field of its own that has the same name"),
    ],
)
async def test_only_the_common_fields_of_a_providers_own_kind_count(spec: JsonObject, chosen: list[str]) -> None:
    """The rest of its spec belongs to the provider."""
    no_client: Any = None
    view = cluster(obj(OWN_KIND, "Vault", "one", TEAM, spec=spec))
    push = push_secret(secretStoreRefs=[{"apiVersion": OWN_KIND, "kind": "Vault", "name": "one"}])

    found: Any = await StoreChooser(view.objects, no_client, "default").choose(push)  # type: ignore[arg-type]  # nothing is included

    assert [each.ref.name for each in found] == chosen
    assert controller_classes(view)(OWN, TEAM) == ("another" if not chosen else "")
