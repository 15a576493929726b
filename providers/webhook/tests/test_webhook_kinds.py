"""The webhook provider's kinds: its v1 block as objects of their own, beside the generator of the same name."""

import msgspec

from eso_api.kinds import installed_kinds
from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP
from eso_provider_webhook.kinds import KINDS, STORES
from eso_provider_webhook.provider import PROVIDER
from eso_provider_webhook.store import WebhookStore
from eso_sdk import ALWAYS
from eso_sdk.provider import served_kind
from eso_wire.values import KindRole, Operation


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())
    assert set(KINDS) == set(PROVIDER.kinds_for_crds)


def test_the_store_and_the_generator_have_one_name_in_different_groups() -> None:
    assert [(kind.name, kind.group, kind.namespaced) for kind in KINDS] == [
        ("Webhook", STORE_CONFIG_GROUP, True),
        ("ClusterWebhook", STORE_CONFIG_GROUP, False),
        ("Webhook", GENERATOR_CONFIG_GROUP, True),
    ]


def test_the_spec_is_that_of_the_v1_provider() -> None:
    v1 = {"url": "https://example.com", "result": {"jsonPath": "$.a"}, "timeout": "5s"}

    for spec in (msgspec.convert({"spec": v1}, kind.type).spec for kind in STORES):
        assert isinstance(spec, WebhookProvider)
        assert (spec.url, spec.result.json_path, spec.timeout) == ("https://example.com", "$.a", "5s")


def test_the_block_of_v1_stores_belongs_to_the_store() -> None:
    keys = {info.kind: info.v1_provider_key for info in PROVIDER.kind_infos if info.v1_provider_key}

    assert [(kind.kind, key) for kind, key in keys.items()] == [("Webhook", "webhook")]


def test_the_store_reads_writes_and_tells_absence_but_finds_nothing() -> None:
    (info, _) = (info for info in PROVIDER.kind_infos if info.role is KindRole.STORE)

    assert info.operations == {
        Operation.GET,
        Operation.GET_MAP,
        Operation.EXISTS,
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.DELETE,
        Operation.NOT_FOUND_SEMANTICS,
    }


def test_results_always_depend_on_the_namespace_of_the_caller() -> None:
    assert served_kind(WebhookStore).caller_dependences == (ALWAYS,)
