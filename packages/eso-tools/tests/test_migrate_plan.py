"""The plan of a migration: what is created, which references switch, what is left and why, and the way back. Pure."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_testkit.tools.migrations import (
    FAKE,
    GENERATORS,
    TO_C,
    TO_S,
    V2,
    C,
    bridges,
    forth,
    from_generator,
    obj,
    password,
    pusher,
    reader,
    refs,
    store,
    template,
    why,
)
from eso_tools.migrate.bridges import Bridges
from eso_tools.migrate.convert import LABEL, MADE_BY, ORIGIN
from eso_tools.migrate.inventory import USERS, Inventory, id_of
from eso_tools.migrate.plan import MigrationPlan, plan_forth
from eso_tools.migrate.references import generates, sites
from eso_tools.migrate.rollback import plan_back, still_needed
from kubebase.meta import JsonObject

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# --- what is created --------------------------------------------------------------------------------------------------


def test_a_store_becomes_a_configuration_object_and_a_v2_store() -> None:
    """R167: all that does not concern the backend is carried over."""
    carried = {"controller": "dev", "refreshInterval": 30, "refreshTrigger": "Poll", "retrySettings": {"maxRetries": 2}}
    block = {"service": "SecretsManager", "region": "eu", "secretsManager": {"forceDeleteWithoutRecovery": True}}

    config, made = forth(store(provider={"aws": block}, spec=carried)).made

    ref = {"apiVersion": "aws.provider.external-secrets.io/v2alpha1", "kind": "SecretsManager", "name": "s"}
    assert (config["kind"], config["metadata"]["namespace"]) == ("SecretsManager", "a")
    assert config["spec"] == {"region": "eu", "deletion": {"forceDeleteWithoutRecovery": True}}
    assert made["spec"] == {**carried, "providerConfig": {"providerRef": ref}}
    assert made["metadata"]["labels"] == {LABEL: MADE_BY}
    assert made["metadata"]["annotations"] == {ORIGIN: "external-secrets.io/SecretStore/s"}


def test_a_cluster_store_takes_credentials_from_the_namespaces_it_took_them_from_before() -> None:
    conditions = [{"namespaces": ["a"]}]
    vault = {"server": "https://v", "auth": {"tokenSecretRef": {"name": "t", "key": "k", "namespace": "vault"}}}

    (made,) = forth(store(namespace="", provider={"vault": vault}, spec={"conditions": conditions})).made

    assert made["spec"] == {
        "conditions": conditions,
        "authenticationScope": "ManifestNamespace",
        "providerConfig": {"inline": {"kind": "Vault", "spec": vault}},
    }


@pytest.mark.parametrize("namespace", ["a", ""])
def test_a_plugin_store_keeps_its_connection(namespace: str) -> None:
    """R165: the block already says how the provider is reached."""
    plugin = {"address": "p.e.svc:8080", "providerRef": {"kind": "Fake", "name": "f"}}

    (made,) = forth(store(namespace=namespace, provider={"plugin": plugin})).made

    assert made["spec"]["providerConfig"] == plugin


def test_references_of_a_generator_lose_the_namespaces_that_were_ignored() -> None:
    auth = {"secretRef": {"accessKeyIDSecretRef": {"name": "n", "key": "k", "namespace": "elsewhere"}}}

    config, _ = forth(password(kind="ECRAuthorizationToken", region="eu", auth=auth)).made

    assert config["spec"]["auth"]["secretRef"]["accessKeyIDSecretRef"] == {"name": "n", "key": "k"}


def test_a_generator_keeps_its_operator_and_is_called_in_every_state() -> None:
    _, made = forth(password(kind="Fake", data={}, controller="dev")).made

    assert made["spec"]["controller"] == "dev"
    assert made["spec"]["gatingPolicy"] == "Disabled"


def test_generators_of_one_name_get_different_names_and_keep_them() -> None:
    """A later migration finds a generator under the name that an earlier one gave it."""
    first = forth(password(kind="UUID"), from_generator(kind="UUID", refreshInterval=0))
    before = [*first.made, password(kind="UUID"), password(), from_generator(refreshInterval=0)]

    second = forth(*before)

    assert [id_of(each.store).name for each in first.converted] == ["g"]
    assert {each.origin.kind: id_of(each.store).name for each in second.converted} == {
        "UUID": "g",
        "Password": "g-password",
    }
    assert refs(second)["spec.dataFrom[0].sourceRef.generatorRef"]["name"] == "g-password"


VAULT_CA = {
    "provider": {"server": "https://v", "caProvider": {"type": "Secret", "name": "ca", "key": "c"}},
    "path": "p",
}
EMBEDDED = {"kind": "VaultDynamicSecret", "generator": {"vaultDynamicSecretSpec": VAULT_CA}}


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param(
            [store(provider={"chef": {}})],
            "no installed provider serves spec.provider.chef",
            id="R166 no package",
        ),
        pytest.param([store(provider={"aws": {"service": "Other"}})], "no installed provider", id="an unknown service"),
        pytest.param([store(provider={**FAKE, "aws": {}})], "exactly one member", id="two providers"),
        pytest.param(
            [store(provider={"fake": {"dat": []}})], "Fake has no field spec.dat", id="a field that would be lost"
        ),
        pytest.param([store(metadata={"deletionTimestamp": "x"})], "being deleted", id="a store that goes"),
        pytest.param(
            [store(), obj(V2, "SecretStore", "s", "a", spec={})], "exists and differs", id="a name that is taken"
        ),
        pytest.param(
            [obj(GENERATORS, "ClusterGenerator", "g", spec=EMBEDDED)],
            "put the bundle into caBundle",
            id="a CA of each user",
        ),
    ],
)
def test_refusals(objects: list[JsonObject], words: str) -> None:
    """Named, left unchanged, and so are the references to it."""
    plan = forth(*objects, reader())

    assert plan.made == []
    assert plan.switches == []
    assert words in why(plan)


def test_a_generator_whose_provider_is_not_installed_is_named() -> None:
    """R166."""
    plan = plan_forth(Inventory([password(kind="Grafana")]), Bridges([]), regenerate=False)

    assert plan.made == []
    assert "no installed provider serves generator Grafana" in why(plan)


# --- which references switch ------------------------------------------------------------------------------------------

ENTRIES: dict[str, Any] = {
    "data": [{"secretKey": "k", "remoteRef": {"key": "r"}, "sourceRef": {"storeRef": C}}],
    "dataFrom": [{"extract": {"key": "r"}, "sourceRef": {"storeRef": C}}],
}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param(
            reader(**ENTRIES),
            {
                "spec.secretStoreRef": TO_S,
                "spec.data[0].sourceRef.storeRef": TO_C,
                "spec.dataFrom[0].sourceRef.storeRef": TO_C,
            },
            id="R167 ExternalSecret",
        ),
        pytest.param(
            template("ClusterExternalSecret", "externalSecretSpec", reader()),
            {"spec.externalSecretSpec.secretStoreRef": TO_S},
            id="R167 ClusterExternalSecret",
        ),
        pytest.param(
            pusher({"name": "s"}, C, dataTo=[{"storeRef": {"name": "s"}}]),
            {"spec.secretStoreRefs[0]": TO_S, "spec.secretStoreRefs[1]": TO_C, "spec.dataTo[0].storeRef": TO_S},
            id="R167 PushSecret",
        ),
        pytest.param(
            template("ClusterPushSecret", "pushSecretSpec", pusher(C)),
            {"spec.pushSecretSpec.secretStoreRefs[0]": TO_C},
            id="R167 ClusterPushSecret",
        ),
        pytest.param(reader(secretStoreRef=TO_S), {}, id="R148 migrated already"),
        pytest.param(reader(secretStoreRef={"kind": "Provider", "name": "s"}), {}, id="a Provider stays"),
    ],
)
def test_references_switch(user: JsonObject, expected: dict[str, Any]) -> None:
    plan = forth(store(), store("s", "b"), store("c", ""), user)

    assert refs(plan) == expected
    assert why(plan) == ""


def test_a_child_follows_its_parent() -> None:
    child = reader()
    child["metadata"]["ownerReferences"] = [{"kind": "ClusterExternalSecret", "name": "p"}]

    assert forth(store(), child).switches == []


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param([reader()], "SecretStore s is not among the objects that were read", id="the store was not read"),
        pytest.param(
            [
                store(),
                store("s", "b", {"chef": {}}),
                template("ClusterExternalSecret", "externalSecretSpec", reader()),
            ],
            "SecretStore b/s is not migrated",
            id="a fan-out with a namespace that is left",
        ),
        pytest.param(
            [store(), pusher({"name": "s"}, {"name": "other"})],
            "other is not among",
            id="a PushSecret switches as a whole",
        ),
    ],
)
def test_references_that_stay(objects: list[JsonObject], words: str) -> None:
    plan = forth(*objects)

    assert plan.switches == []
    assert words in why(plan)


def test_a_label_selector_selects_the_successors() -> None:
    """Only labels that references select by are copied: others may belong to deployment tools."""
    labelled = store(metadata={"labels": {"tier": "one", "app.kubernetes.io/instance": "argo"}})
    by_label = pusher({"labelSelector": {"matchLabels": {"tier": "one"}}})

    plan = forth(labelled, by_label)

    assert plan.made[-1]["metadata"]["labels"] == {"tier": "one", LABEL: MADE_BY}
    assert refs(plan) == {
        "spec.secretStoreRefs[0]": {
            "labelSelector": {"matchLabels": {"tier": "one"}},
            "apiVersion": V2,
            "kind": "SecretStore",
        }
    }
    other = obj(V2, "SecretStore", "other", "a", metadata={"labels": {"tier": "one"}}, spec={})
    assert "would also select SecretStore a/other" in why(forth(labelled, other, by_label))


@pytest.mark.parametrize(
    ("user", "new_values"),
    [
        pytest.param(from_generator(), True, id="periodic"),
        pytest.param(from_generator(refreshPolicy="OnChange"), True, id="on change"),
        pytest.param(from_generator(refreshInterval=0), False, id="an interval of 0"),
        pytest.param(from_generator(refreshInterval="0s"), False, id="an interval of 0 s"),
        pytest.param(from_generator(refreshPolicy="CreatedOnce"), False, id="created once"),
        pytest.param(
            pusher({"name": "s"}, selector={"generatorRef": {"kind": "Password", "name": "g"}}), True, id="a push"
        ),
        pytest.param(reader(), False, id="no generator"),
    ],
)
def test_new_values_are_generated_only_on_request(user: JsonObject, new_values: bool) -> None:
    plan = forth(store(), password(), user)

    assert generates(user) is new_values
    assert bool(plan.switches) is not new_values
    assert ("--regenerate" in why(plan)) is new_values
    assert len(forth(store(), password(), user, regenerate=True).switches) == 1


# --- the way back -----------------------------------------------------------------------------------------------------


def carried_out(inventory: Inventory, plan: MigrationPlan) -> Inventory:
    return Inventory([*inventory, *plan.made, *(each.changed for each in plan.switches)])


def targets(inventory: Inventory) -> dict[str, Any]:
    """What every reference means, however it is written."""
    return {
        f"{id_of(user)} {site}": (site.group, site.kind, site.name, site.selector)
        for user in inventory.of(*USERS)
        for site in sites(user)
    }


def test_every_example_goes_forth_and_back() -> None:
    """R162, R168: every reference means again what it meant before; nothing refers to an object of the migration."""
    files = sorted(EXAMPLES.rglob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text()) if isinstance(one, dict)]
    start = Inventory(copy.deepcopy(documents))
    there = carried_out(start, plan_forth(start, bridges(), regenerate=True))

    back = plan_back(there, regenerate=True)

    assert len(back.switches) > 20
    assert back.left == []
    home = carried_out(there, back)
    assert targets(home) == targets(start)
    assert still_needed(home).isdisjoint(id_of(each) for each in back.obsolete)
    assert plan_forth(there, bridges(), regenerate=True).switches == [], "R148: a second run finds nothing to switch"


def test_only_objects_of_a_migration_become_obsolete() -> None:
    """R168: a v2 store that people wrote stays, and so do references to it."""
    own = obj(V2, "SecretStore", "own", "a", spec={"providerConfig": {}})
    inventory = Inventory([store(), own, reader(secretStoreRef={**TO_S, "name": "own"})])

    back = plan_back(carried_out(inventory, plan_forth(inventory, bridges(), regenerate=False)), regenerate=False)

    assert sorted(str(id_of(each)) for each in back.obsolete) == ["Fake a/s", "SecretStore a/s"]
    assert back.switches == []


def test_a_v2_store_that_people_wrote_is_used_and_stays_theirs() -> None:
    """It says what the migration would say: nothing marks it, so that a rollback does not remove it."""
    config, written = copy.deepcopy(forth(store()).made)
    for each in (config, written):
        del each["metadata"]["labels"], each["metadata"]["annotations"]

    plan = forth(store(), config, written, reader())

    assert plan.made == []
    assert refs(plan) == {"spec.secretStoreRef": TO_S}
    config["spec"]["data"] = [{"key": "k", "value": "another"}]
    assert "exists and differs" in why(forth(store(), config, written, reader()))
    config["spec"] = {"data": [], "validationResult": 1}
    assert "exists and differs" in why(forth(store(), config, written, reader()))


def test_a_reference_stays_while_its_v1_store_does_not_exist() -> None:
    inventory = Inventory([store(), reader()])
    there = carried_out(inventory, plan_forth(inventory, bridges(), regenerate=False))
    without = Inventory(
        [each for each in there if id_of(each).group != "external-secrets.io" or each["kind"] != "SecretStore"]
    )

    back = plan_back(without, regenerate=False)

    assert back.switches == []
    assert "SecretStore a/s of external-secrets.io does not exist" in why(back)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(reader(secretStoreRef=TO_S), id="a reference"),
        pytest.param(
            pusher() | {"status": {"syncedPushSecrets": {"secretstore.external-secrets.io/SecretStore/s": {"k": {}}}}},
            id="a value that was pushed",
        ),
        pytest.param(
            template("ClusterExternalSecret", "externalSecretSpec", reader(secretStoreRef=TO_S)), id="a fan-out"
        ),
    ],
)
def test_objects_that_are_still_needed(user: JsonObject) -> None:
    made = forth(store()).made

    needed = still_needed(Inventory([*made, store(), user]))

    assert {id_of(each) for each in made} <= needed


def test_a_generator_is_needed_while_a_state_of_it_exists() -> None:
    resource = {"apiVersion": "generator.external-secrets.io/v2alpha1", "kind": "Generator", "metadata": {"name": "g"}}
    state = obj(GENERATORS, "GeneratorState", "state", "a", spec={"resource": resource})
    made = forth(password()).made

    assert {id_of(each) for each in made} <= still_needed(Inventory([*made, state]))
