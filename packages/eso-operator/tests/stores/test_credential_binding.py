"""Credentials of a configuration: the objects that are read, and the errors for missing ones (R119)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eso_operator.stores.credentialreader import Content, CredentialReadError
from eso_operator.stores.credentials import MAX_CREDENTIALS, bind, reads_of
from eso_operator.stores.resolved import CallToken, Reason, ReferenceRule, ResolutionError, ResolvedStore
from eso_render.metering import busy_seconds
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.clusters import NotedReads
from eso_wire.values import ConfigDelivery, CredentialKind, CredentialPath
from kubebase.meta import JsonObject, ObjectKey

SECRET, ACCOUNT = CredentialKind.SECRET_KEY, CredentialKind.SERVICE_ACCOUNT
WHOLE, CA = CredentialKind.WHOLE_SECRET, CredentialKind.CA_PROVIDER
OWN, EXPLICIT, IGNORE = ReferenceRule.OWN_NAMESPACE, ReferenceRule.EXPLICIT_OR_AUTH, ReferenceRule.IGNORE_EXPLICIT


def target(
    spec: JsonObject, *paths: tuple[str, CredentialKind], rule: ReferenceRule = OWN, auth: str = "team"
) -> ResolvedStore:
    base = bound_store().resolved
    credentials = tuple(CredentialPath(pattern, kind) for pattern, kind in paths)
    config = replace(base.config, spec=json.dumps(spec).encode(), credentials=credentials, rule=rule)
    return replace(base, config=config, auth_namespace=auth)


def refused(resolved: ResolvedStore) -> ResolutionError:
    with pytest.raises(ResolutionError) as raised:
        reads_of(resolved)
    return raised.value


def ref(namespace: str = "", **fields: Any) -> JsonObject:
    return {"name": "s", "key": "k", **({"namespace": namespace} if namespace else {}), **fields}


@pytest.mark.parametrize("kind", [SECRET, WHOLE, ACCOUNT])
@pytest.mark.parametrize(
    ("rule", "said", "expected"),
    [
        pytest.param(OWN, "", "team", id="own: none said"),
        pytest.param(OWN, "team", "team", id="own: said"),
        pytest.param(OWN, "other", Reason.CROSS_NAMESPACE, id="own: another one is refused (R114, R130)"),
        pytest.param(EXPLICIT, "", "team", id="explicit: none said"),
        pytest.param(EXPLICIT, "other", "other", id="explicit: another one (R131)"),
        pytest.param(IGNORE, "", "team", id="ignore: none said"),
        pytest.param(IGNORE, "other", "team", id="ignore: another one is ignored"),
    ],
)
def test_the_namespace_of_a_reference(kind: CredentialKind, rule: ReferenceRule, said: str, expected: object) -> None:
    resolved = target({"ref": ref(said)}, ("/ref", kind), rule=rule)

    if isinstance(expected, Reason):
        assert refused(resolved).reason is expected
    else:
        assert reads_of(resolved)[0].object == ObjectKey(str(expected), "s")


@pytest.mark.parametrize(
    ("rule", "said", "expected"),
    [
        pytest.param(OWN, "", "team", id="own: none said"),
        pytest.param(OWN, "other", Reason.CROSS_NAMESPACE, id="own: another one"),
        pytest.param(EXPLICIT, "", Reason.INVALID_CONFIG, id="v1 cluster store: must be said"),
        pytest.param(EXPLICIT, "other", "other", id="v1 cluster store: said"),
        pytest.param(IGNORE, "", "team", id="generator: none said"),
        pytest.param(IGNORE, "other", Reason.CROSS_NAMESPACE, id="generator: another one is refused, not ignored"),
    ],
)
@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_the_namespace_of_a_ca_bundle(kind: str, rule: ReferenceRule, said: str, expected: object) -> None:
    resolved = target({"caProvider": ref(said, type=kind)}, ("/caProvider", CA), rule=rule)

    if isinstance(expected, Reason):
        assert refused(resolved).reason is expected
    else:
        assert reads_of(resolved)[0].object == ObjectKey(str(expected), "s")


async def test_every_kind_of_reference_is_read_and_carried_under_its_pointer() -> None:
    spec = {
        "auth": {"token": ref(), "account": {"name": "sa", "audiences": ["b", "a"]}},
        "server": {"caProvider": ref(type="ConfigMap")},
        "secrets": [{"name": "x", "secretRef": {"name": "whole"}}, {"name": "y", "secretRef": {"name": "more"}}],
        "by/name": {"a~b": ref()},
    }
    resolved = target(
        spec,
        ("/auth/token", SECRET),
        ("/auth/account", ACCOUNT),
        ("/server/caProvider", CA),
        ("/secrets/*/secretRef", WHOLE),
        ("/by~1name/*", SECRET),
        ("/absent/ref", SECRET),
    )
    resolved = replace(
        resolved,
        config=replace(
            resolved.config,
            credentials=tuple(
                replace(path, audiences=("a",)) if path.kind is ACCOUNT else path
                for path in resolved.config.credentials
            ),
        ),
    )
    reader = NotedReads()

    bound = await bind(resolved, reader)

    assert [credential.pointer for credential in bound.config.credentials] == [
        "/auth/token",
        "/auth/account",
        "/server/caProvider",
        "/secrets/0/secretRef",
        "/secrets/1/secretRef",
        "/by~1name/a~0b",
    ]
    assert reader.tokens == [(ObjectKey("team", "sa"), ("a", "b"))]
    assert reader.config_maps == [ObjectKey("team", "s")]
    assert sorted(reader.secrets) == [ObjectKey("team", name) for name in ("more", "s", "whole")]
    assert {(source.kind, source.name) for source in bound.sources} == {
        ("Secret", "s"),
        ("Secret", "whole"),
        ("Secret", "more"),
        ("ConfigMap", "s"),
        ("ServiceAccount", "sa"),
    }
    assert bound.config.spec_json is not None
    assert json.loads(bound.config.spec_json.reveal()) == spec


def test_a_bundle_written_out_makes_the_reference_beside_it_void() -> None:
    spec = {"server": {"caBundle": "LS0t", "caProvider": ref("other", type="Secret")}}

    assert reads_of(target(spec, ("/server/caProvider", CA))) == ()


@pytest.mark.parametrize(
    ("reference", "kind", "says"),
    [
        pytest.param("text", SECRET, "/ref needs a name", id="no object"),
        pytest.param({"key": "k"}, SECRET, "/ref needs a name", id="no name"),
        pytest.param({"name": "s"}, SECRET, "/ref needs a key", id="no key"),
        pytest.param({"name": "s", "key": 5}, SECRET, "/ref needs a key", id="key of another type"),
        pytest.param({"name": "s", "key": "k", "namespace": 5}, SECRET, "must be a string", id="namespace"),
        pytest.param({"name": "s", "audiences": "x"}, ACCOUNT, "must be a list", id="audiences"),
        pytest.param({"name": "s", "key": "k", "type": "Pod"}, CA, "Secret or ConfigMap", id="bundle in a Pod"),
    ],
)
def test_a_malformed_reference_is_named(reference: object, kind: CredentialKind, says: str) -> None:
    error = refused(target({"ref": reference}, ("/ref", kind)))

    assert error.reason is Reason.INVALID_CONFIG
    assert says in error.message


def test_the_number_of_references_is_bounded() -> None:
    spec = {"refs": [ref()] * (MAX_CREDENTIALS + 1)}

    assert refused(target(spec, ("/refs/*", SECRET))).reason is Reason.INVALID_CONFIG


def test_a_large_configuration_is_looked_through_once() -> None:
    """In processor time: 200 paths through a megabyte took most of a second, for each reconcile that used the store."""
    spec = {"refs": [{"a": {"name": "x" * 1000}} for _ in range(1000)]}
    large = target(spec, *((f"/refs/*/a/ref{number}", SECRET) for number in range(200)))
    taken = []
    for _ in range(5):
        begun = busy_seconds()
        assert reads_of(large) == ()
        taken.append(busy_seconds() - begun)

    assert min(taken) < 0.25


def test_a_configuration_that_is_too_large_is_refused() -> None:
    error = refused(target({"refs": [{"a": 1}] * 30_000}, ("/refs/*/ref", SECRET)))

    assert error.reason is Reason.INVALID_CONFIG
    assert "too large to look for references to credentials in it: more than 20000 places" in error.message


@pytest.mark.parametrize(
    ("kind", "reference", "gone", "says"),
    [
        pytest.param(SECRET, ref(), True, ["Secret team/s", "/ref"], id="Secret"),
        pytest.param(WHOLE, ref(), True, ["Secret team/s", "/ref"], id="whole Secret"),
        pytest.param(CA, ref(type="ConfigMap"), True, ["ConfigMap team/s", "/ref"], id="ConfigMap"),
        pytest.param(ACCOUNT, ref(), True, ["ServiceAccount team/s", "/ref"], id="service account"),
        pytest.param(SECRET, ref(key="absent"), False, ["Secret team/s", "absent", "/ref"], id="key"),
        pytest.param(
            CA, ref(type="Secret", key="absent"), False, ["Secret team/s", "absent", "/ref"], id="key of a CA"
        ),
    ],
)
async def test_a_missing_credential_is_named(
    kind: CredentialKind, reference: JsonObject, gone: bool, says: list[str]
) -> None:
    reader = NotedReads(missing=frozenset({ObjectKey("team", "s")}) if gone else frozenset())

    with pytest.raises(ResolutionError) as raised:
        await bind(target({"ref": reference}, ("/ref", kind)), reader)

    assert raised.value.reason is Reason.CREDENTIALS_NOT_FOUND
    assert all(part in raised.value.message for part in says)
    assert raised.value.subject.name == "s"


async def test_an_unreadable_credential_is_tried_again_later() -> None:
    class Forbidden(NotedReads):
        async def secret(self, key: ObjectKey) -> Content | None:
            raise CredentialReadError(f"no permission for {key.name}")

        async def service_account(self, key: ObjectKey) -> Content | None:
            raise CredentialReadError(f"no permission for {key.name}")

    for kind in (SECRET, ACCOUNT):
        with pytest.raises(ResolutionError, match="cannot be read: no permission") as raised:
            await bind(target({"ref": ref()}, ("/ref", kind)), Forbidden())
        assert raised.value.reason is Reason.CREDENTIALS_UNREADABLE
        assert raised.value.retry == "BACKOFF"


@pytest.mark.parametrize("rule", [OWN, EXPLICIT])
def test_without_a_user_a_referent_store_is_not_wrong_but_unverified(rule: ReferenceRule) -> None:
    error = refused(target({"ref": ref()}, ("/ref", SECRET), rule=rule, auth=""))

    assert error.reason is Reason.REFERENT_AUTH


async def test_without_a_user_a_configuration_of_each_namespace_is_unverified() -> None:
    resolved = target({})
    unread = replace(resolved, config=replace(resolved.config, spec=None))
    by_reference = replace(unread, config=replace(unread.config, delivery=ConfigDelivery.BY_REFERENCE))
    token = replace(resolved, call_token=CallToken("", "sa", ("x",)))

    for unknown in (unread, token):
        with pytest.raises(ResolutionError) as raised:
            await bind(unknown, NotedReads())
        assert raised.value.reason is Reason.REFERENT_AUTH
    assert (await bind(by_reference, NotedReads())).config.spec_json is None


async def test_the_token_for_calls_is_never_shown() -> None:
    bound = await bind(replace(target({}), call_token=CallToken("team", "CANARY", ("x",))), NotedReads())

    assert bound.token == "token-of-CANARY"
    assert "token-of" not in repr(bound)


# --- identity --------------------------------------------------------------------------------------------------------


async def identity(resolved: ResolvedStore, version: str = "1") -> str:
    reader = NotedReads(versions={ObjectKey("team", "s"): version})
    return (await bind(resolved, reader)).identity


async def test_equal_eyes_have_equal_identities() -> None:
    one = target({"ref": ref()}, ("/ref", SECRET))
    other_caller = replace(one, caller=replace(one.caller, name="other", uid="other"))

    assert await identity(one) == await identity(other_caller)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: replace(t, auth_namespace="other"), id="namespace of credentials"),
        pytest.param(lambda t: replace(t, store=replace(t.store, uid="new")), id="another store"),
        pytest.param(lambda t: replace(t, config=replace(t.config, ref=replace(t.config.ref, uid="n"))), id="config"),
        pytest.param(lambda t: replace(t, call_token=CallToken("team", "sa", ("x",))), id="token for calls"),
        pytest.param(
            lambda t: replace(t, config=replace(t.config, spec=t.config.spec.replace(b'"k"', b'"l"'))), id="spec"
        ),
    ],
)
async def test_other_eyes_have_other_identities(change: Any) -> None:
    one = target({"ref": ref()}, ("/ref", SECRET))

    assert await identity(one) != await identity(change(one))


async def test_an_edited_configuration_counts_for_a_provider_that_reads_it_itself() -> None:
    """Sent objects are compared by content; objects that are only named, by generation."""
    one = target({"ref": ref()})
    edited = replace(one, config=replace(one.config, ref=replace(one.config.ref, generation=9)))
    named, named_edited = (
        replace(each, config=replace(each.config, spec=None, delivery=ConfigDelivery.BY_REFERENCE))
        for each in (one, edited)
    )

    assert await identity(one) == await identity(edited)
    assert await identity(named) != await identity(named_edited)


def cluster_store(spec: JsonObject, *paths: tuple[str, CredentialKind], auth: str) -> ResolvedStore:
    resolved = target(spec, *paths, rule=EXPLICIT, auth=auth)
    return replace(resolved, store=replace(resolved.store, namespace=""))


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param((), id="no credentials"),
        pytest.param((("/ref", SECRET),), id="credentials of a named namespace"),
    ],
)
async def test_a_cluster_store_that_takes_nothing_from_its_callers_is_the_same_for_all(
    paths: tuple[tuple[str, CredentialKind], ...],
) -> None:
    """So that a thousand objects in fifty namespaces share their reads."""
    one, other = (cluster_store({"ref": ref("vault")}, *paths, auth=auth) for auth in ("team", "other"))

    assert await identity(one) == await identity(other)
    context = (await bind(one, NotedReads())).resolved
    assert (context.auth_namespace, context.pinned) == ("", True)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(lambda t: replace(t, config=replace(t.config, spec=None)), id="the provider reads it"),
        pytest.param(lambda t: replace(t, store=replace(t.store, namespace="team")), id="namespaced store"),
        pytest.param(lambda t: replace(t, pinned=True), id="pinned"),
        pytest.param(lambda t: replace(t, call_token=CallToken(t.auth_namespace, "sa", ("x",))), id="token for calls"),
    ],
)
async def test_otherwise_namespaces_of_credentials_differ_even_without_a_reference(own: Any) -> None:
    one, other = (cluster_store({}, auth=auth) for auth in ("team", "other"))
    unread = replace(own(one).config, delivery=ConfigDelivery.BY_REFERENCE)

    assert await identity(replace(own(one), config=unread)) != await identity(replace(own(other), config=unread))


async def test_credentials_of_the_callers_namespace_keep_callers_apart() -> None:
    one, other = (cluster_store({"ref": ref()}, ("/ref", SECRET), auth=auth) for auth in ("team", "other"))

    assert await identity(one) != await identity(other)


async def test_a_changed_credential_is_another_identity() -> None:
    one = target({"ref": ref()}, ("/ref", SECRET))

    assert await identity(one, "1") != await identity(one, "2")
