"""Templates of Secrets, wherever they are kept. On a live API server."""

import base64
import json

import pytest

from eso_operator.targets.metadata import HASH_ANNOTATION, MANAGED_LABEL
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

BOTH = {"user": "user", "password": "db"}
URL = "postgres://{{ .user }}:{{ .password }}@db/app"


def templated(**template: object) -> JsonObject:
    return {"template": template}


def from_map(name: str, key: str, **item: str) -> JsonObject:
    return {"configMap": {"name": name, "items": [{"key": key, **item}]}}


def prepared(stage: Scene) -> None:
    stage.backend(db="v1", user="u1")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param({"data": {"url": URL}}, {"url": "postgres://u1:v1@db/app"}, id="T1 only what is templated"),
        pytest.param(
            {"data": {"user": "{{ .user | upper }}"}, "mergePolicy": "Merge"},
            {"user": "U1", "password": "v1"},
            id="T2 merged: templates win",
        ),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, {"user": "u1", "password": "v1"}, id="T3 metadata alone"),
        pytest.param({}, {"user": "u1", "password": "v1"}, id="T4 an empty template"),
        pytest.param(
            {"templateFrom": [{"literal": "a: 1\nb: yes\nc: 0777\nd: 1.50"}]},
            {"a": "1", "b": "true", "c": "511", "d": "1.5"},
            id="T10 a literal is YAML 1.1",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "user: literal"}], "data": {"user": "data"}},
            {"user": "data"},
            id="T9 data wins over templateFrom",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: '{{ .user }}'", "target": ""}]}, {"a": "u1"}, id="T15 no target is data"
        ),
    ],
)
async def test_templates_make_the_data(stage: Scene, template: JsonObject, expected: dict[str, str]) -> None:
    """R32, R33, R34, R39, R126."""
    prepared(stage)

    await stage.sync("db", BOTH, target={"template": template}, metadata={"labels": {"own": "label"}})

    secret = await stage.secret("db")
    assert secret is not None
    assert await stage.data("db") == expected
    assert "own" not in secret["metadata"]["labels"]


@pytest.mark.parametrize("source", ["fetched", "generated"])
async def test_a_template_makes_a_registry_login(stage: Scene, source: str) -> None:
    """R26: of a token that is fetched or, as with a registry's own tokens, one that a generator makes."""
    stage.backend(db="generated")
    login = '{"auths": {"reg": {"auth": "{{ printf "%s:%s" "AWS" .password | b64enc }}"}}}'
    target = templated(type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": login})
    await stage.bench.create(MAKER.resource(), "registry", spec={})
    ref = {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "registry"}

    if source == "fetched":
        await stage.sync("db", {"password": "db"}, target=target)
    else:
        await stage.sync("db", dataFrom=[{"sourceRef": {"generatorRef": ref}}], target=target)

    secret = await stage.secret("db")
    assert secret is not None
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    auths = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]
    assert base64.b64decode(auths["reg"]["auth"]) == b"AWS:generated"


async def test_metadata_is_templated_and_our_own_marks_win(stage: Scene) -> None:
    """T12, T16, T18."""
    prepared(stage)
    template = {
        "metadata": {
            "labels": {"user": "{{ .user }}", MANAGED_LABEL: "false"},
            "annotations": {"both": "metadata", HASH_ANNOTATION: "forged"},
        },
        "templateFrom": [{"literal": "both: literal\nnote: '{{ .user }}'", "target": "annotations"}],
        "data": {"a": "b"},
    }

    await stage.sync("db", BOTH, target={"template": template})

    secret = await stage.secret("db")
    assert secret is not None
    labels, annotations = secret["metadata"]["labels"], secret["metadata"]["annotations"]
    assert (labels["user"], labels[MANAGED_LABEL]) == ("u1", "true")
    assert (annotations["both"], annotations["note"]) == ("metadata", "u1")
    assert annotations[HASH_ANNOTATION] != "forged"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        pytest.param({"data": {"a": "{{ .no_such_key }}"}}, ("no_such_key",), id="T5 a key that is not there"),
        pytest.param({"data": {"a": "{{ env `HOME` }}"}}, ("env",), id="T6 a function that is not there"),
        pytest.param({"data": {"a": "{{ .user"}}, (), id="T6 no template"),
        pytest.param({"templateFrom": [{"literal": "a: {b: c}"}]}, ("a",), id="T11 a map for a Secret"),
        pytest.param(
            {"templateFrom": [{"literal": "a: '!'", "valuesDecodingStrategy": "Base64"}]}, ("a",), id="T13 no base64"
        ),
        pytest.param({"metadata": {"labels": {"a": "no label!"}}}, ("label",), id="T17 no label"),
    ],
)
async def test_a_failed_template_leaves_the_secret_unchanged(
    stage: Scene, template: JsonObject, words: tuple[str, ...]
) -> None:
    prepared(stage)
    await stage.sync("db", BOTH)
    before = await stage.secret("db")
    assert before is not None

    await stage.change("db", target={"template": template})

    await stage.broken("db", "could not update secret", *words)
    now = await stage.secret("db")
    assert now is not None
    assert now["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await stage.change("db", target={"template": None})
    await stage.ready("db")


async def test_a_template_that_is_kept_elsewhere_may_come_later_and_may_change(stage: Scene) -> None:
    """T7, T8: both are seen at once, not at the next refresh."""
    prepared(stage)
    await stage.apply("db", BOTH, target=templated(templateFrom=[from_map("shared", "url")]))
    es = await stage.broken("db", "could not update secret", "ConfigMap", "shared")
    [outcome] = es["status"]["outcomes"]
    assert (outcome["step"], outcome["path"], outcome["reason"]) == ("Render", "spec.target.template", "TemplateError")

    await stage.bench.create(CONFIG_MAPS, "shared", data={"other": "x"})
    await stage.broken("db", "shared", "no key url")
    await stage.bench.patch(CONFIG_MAPS, "shared", {"data": {"url": URL}})
    await stage.until("db", {"url": "postgres://u1:v1@db/app"})
    await stage.bench.patch(CONFIG_MAPS, "shared", {"data": {"url": "mysql://{{ .user }}"}})

    await stage.until("db", {"url": "mysql://u1"})


async def test_a_template_in_a_secret_may_hold_keys_and_values(stage: Scene) -> None:
    prepared(stage)
    await stage.put_secret("shared", {"all": "login: '{{ .user }}:{{ .password }}'"})
    source = {"secret": {"name": "shared", "items": [{"key": "all", "templateAs": "KeysAndValues"}]}}

    await stage.sync("db", BOTH, target=templated(templateFrom=[source]))
    assert await stage.data("db") == {"login": "u1:v1"}
    await stage.edit("shared", {"all": "only: '{{ .user }}'"})

    await stage.until("db", {"only": "u1"})


@pytest.mark.parametrize("spec", [{"refreshPolicy": "CreatedOnce"}, {"refreshInterval": 0}], ids=str)
async def test_a_changed_template_is_no_reason_to_read_what_is_read_once(stage: Scene, spec: JsonObject) -> None:
    prepared(stage)
    await stage.bench.create(CONFIG_MAPS, "shared", data={"url": "v1"})
    await stage.sync("db", BOTH, target=templated(templateFrom=[from_map("shared", "url")]), **spec)

    await stage.bench.patch(CONFIG_MAPS, "shared", {"data": {"url": "v2"}})
    await stage.until_idle()

    assert await stage.data("db") == {"url": "v1"}


async def test_an_unchanged_template_is_no_reason_to_read_the_backend(stage: Scene) -> None:
    prepared(stage)
    await stage.bench.create(CONFIG_MAPS, "shared", data={"url": "v1"})
    await stage.sync("db", BOTH, target=templated(templateFrom=[from_map("shared", "url")]))
    await stage.until_idle()
    reads = sum(len(batch) for batch in stage.provider.requests if batch[0].ref.key != "sentinel")

    await stage.edit("db", {"url": "edited"})
    await stage.until("db", {"url": "v1"})
    await stage.until_idle()

    assert sum(len(batch) for batch in stage.provider.requests if batch[0].ref.key != "sentinel") == reads + 2


async def test_a_finalizer_of_a_template_is_added_and_never_taken_off(stage: Scene) -> None:
    """T21; and a type that the template no longer names stays, since a Secret cannot change it."""
    prepared(stage)
    template = {
        "type": "example.com/login",
        "metadata": {"finalizers": ["example.com/hold"], "labels": {"a": "b"}},
        "data": {"a": "{{ .user }}"},
    }
    await stage.sync("db", BOTH, target={"template": template})
    held = await stage.secret("db")
    assert held is not None
    assert held["metadata"]["finalizers"] == ["example.com/hold"]

    await stage.change("db", target={"template": {"type": None, "metadata": None, "data": {"a": "changed"}}})

    await stage.until("db", {"a": "changed"})
    now = await stage.secret("db")
    assert now is not None
    assert now["metadata"]["finalizers"] == ["example.com/hold"]
    assert now["type"] == "example.com/login"
    assert "a" not in now["metadata"]["labels"]
    await stage.bench.patch(SECRETS, "db", {"metadata": {"finalizers": None}})


async def test_another_type_for_an_existing_secret_is_refused_by_the_api_server(stage: Scene) -> None:
    """T19."""
    prepared(stage)
    await stage.sync("db", BOTH)

    await stage.change("db", target=templated(type="example.com/login", data={"a": "b"}))

    await stage.broken("db", "could not update secret", "Invalid")
    assert await stage.data("db") == {"user": "u1", "password": "v1"}


async def test_a_key_that_leaves_the_template_leaves_the_secret(stage: Scene) -> None:
    """T20."""
    prepared(stage)
    await stage.sync("db", BOTH, target=templated(data={"a": "1", "b": "2"}))

    await stage.change("db", target=templated(data={"a": None}))

    await stage.until("db", {"b": "2"})


async def test_binary_values_survive_a_template(stage: Scene) -> None:
    """T22."""
    stage.provider.data["bin"] = bytes(range(256))

    await stage.sync("db", {"bin": "bin"}, target=templated(data={"copy": "{{ .bin }}"}))

    secret = await stage.secret("db")
    assert secret is not None
    assert base64.b64decode(secret["data"]["copy"]) == bytes(range(256))


async def test_static_templates_are_not_rendered_when_the_backend_has_nothing(stage: Scene) -> None:
    """T27."""
    entry = {"find": {"name": {"regexp": ".*"}, "path": "none/"}}

    await stage.apply("db", dataFrom=[entry], target=templated(data={"a": "static"}))

    await stage.ready("db", "SecretSynced", "retained")
    assert await stage.secret("db") is None


async def test_a_template_that_makes_tokens_of_the_cluster_is_refused(stage: Scene) -> None:
    """T14: by the API server already."""
    prepared(stage)
    await stage.sync("db", BOTH)
    path = ES.path(stage.bench.namespace, "db")
    forged = {"type": "kubernetes.io/service-account-token"}
    forged_metadata = {"annotations": {"kubernetes.io/service-account.name": "default"}}

    for template in ({**forged, "metadata": forged_metadata}, {"templateFrom": [{"literal": "a", "target": "type"}]}):
        answer = await stage.bench.api.patch(path, {"spec": {"target": {"template": template}}})
        assert answer.status == 422


async def test_random_templates_change_the_secret_with_each_refresh_only(stage: Scene) -> None:
    """T25."""
    prepared(stage)
    await stage.sync("db", BOTH, target=templated(data={"r": "{{ randAlphaNum 20 }}"}))
    first = await stage.data("db")
    await stage.until_idle()
    assert await stage.data("db") == first

    await stage.force("db")

    async def changed() -> bool:
        return await stage.data("db") != first

    await eventually(changed, "the value stays")
