"""Whom tokens of service accounts are for, how long they live, and what travels with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eso_operator.stores.credentials import ConfigMapKey, SecretKey, bind, reads_of
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.clusters import NotedReads
from eso_wire.values import AudienceRule, AudienceSource, CredentialKind, CredentialPath, ObjectRef, Token
from kubebase.meta import ObjectKey

SOURCE = AudienceSource
POINTER = "/auth/jwt/ref"


def account(*rules: AudienceRule, **terms: Any) -> CredentialPath:
    return CredentialPath(POINTER, CredentialKind.SERVICE_ACCOUNT, ("older",), audience_rules=rules, **terms)


def target(path: CredentialPath, reference: dict[str, Any] | None = None, **beside: Any) -> ResolvedStore:
    spec = {"projectID": "p1", "auth": {"jwt": {"ref": {"name": "robot", **(reference or {})}, **beside}}}
    base = bound_store().resolved
    config = replace(base.config, spec=json.dumps(spec).encode(), credentials=(path,))
    return replace(base, config=config, auth_namespace="team")


SAID = {"audiences": ["said"]}
REFERENCE = AudienceRule(SOURCE.REFERENCE)
BESIDE = AudienceRule(SOURCE.SPEC, ("1/audiences",), otherwise=("vault",))
ANNOTATED = AudienceRule(SOURCE.ANNOTATION, ("aud-1", "aud-2"), otherwise=("sts",))


@pytest.mark.parametrize(
    ("rules", "reference", "beside", "annotations", "expected"),
    [
        pytest.param((), SAID, {}, {}, ("older", "said"), id="no rules: those of the path, then the reference's"),
        pytest.param((AudienceRule(SOURCE.TEXT, ("a", "b")), REFERENCE), SAID, {}, {}, ("a", "b", "said"), id="texts"),
        pytest.param((REFERENCE, BESIDE), SAID, {"audiences": ["x"]}, {}, ("said", "x"), id="beside the reference"),
        pytest.param((REFERENCE, BESIDE), {}, {}, {}, ("vault",), id="the default only where nothing is said"),
        pytest.param((REFERENCE, BESIDE), SAID, {"audiences": []}, {}, ("said", "vault"), id="an empty list is none"),
        pytest.param((ANNOTATED, REFERENCE), SAID, {}, {"aud-2": "mine"}, ("mine", "said"), id="an annotation"),
        pytest.param((ANNOTATED,), {}, {}, {}, ("sts",), id="no annotation: the default"),
        pytest.param(
            (AudienceRule(SOURCE.SPEC, ("1/cluster", "3/projectID"), ".svc.id.goog"),),
            {},
            {},
            {},
            ("p1.svc.id.goog",),
            id="the first place of the spec that has something, with a suffix",
        ),
        pytest.param((AudienceRule(SOURCE.STORE),), {}, {}, {}, ("secretStore:team:vault",), id="the store"),
        pytest.param((REFERENCE, REFERENCE), SAID, {}, {}, ("said",), id="each audience once"),
    ],
)
async def test_audiences_are_computed_from_the_rules_of_the_provider(
    rules: tuple[AudienceRule, ...],
    reference: dict[str, Any],
    beside: dict[str, Any],
    annotations: dict[str, str],
    expected: tuple[str, ...],
) -> None:
    reader = NotedReads(annotations=annotations)
    resolved = target(account(*rules), reference, **beside)
    store = ObjectRef("external-secrets.io/v1", "SecretStore", "team", "vault")

    await bind(replace(resolved, store=store), reader)

    assert reader.tokens == [(ObjectKey("team", "robot"), expected)]


async def test_a_cluster_scoped_store_names_itself_without_a_namespace() -> None:
    reader = NotedReads()
    resolved = target(account(AudienceRule(SOURCE.STORE)))
    store = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared")

    await bind(replace(resolved, store=store), reader)

    assert reader.tokens[0][1] == ("clusterSecretStore:shared",)


async def test_a_rule_that_this_operator_does_not_know_makes_no_token() -> None:
    reader = NotedReads()

    with pytest.raises(ResolutionError, match="upgrade it") as caught:
        await bind(target(account(AudienceRule(None))), reader)

    assert caught.value.reason is Reason.INVALID_CONFIG
    assert reader.tokens == []


@pytest.mark.parametrize(
    ("terms", "beside", "expected"),
    [
        pytest.param({}, {}, 0, id="the operator decides"),
        pytest.param({"lifetime_seconds": 900}, {}, 900, id="a constant"),
        pytest.param(
            {"lifetime_seconds": 600, "lifetime_pointer": "1/seconds"}, {"seconds": 1200}, 1200, id="from the spec"
        ),
        pytest.param(
            {"lifetime_seconds": 600, "lifetime_pointer": "1/seconds"}, {}, 600, id="absent in the spec: the constant"
        ),
        pytest.param({"lifetime_pointer": "1/seconds"}, {"seconds": 5}, 600, id="no shorter than API servers give"),
        pytest.param({"lifetime_pointer": "1/seconds"}, {"seconds": 10**9}, 86400, id="no longer than a day"),
    ],
)
async def test_tokens_live_as_long_as_the_spec_says(
    terms: dict[str, Any], beside: dict[str, Any], expected: int
) -> None:
    reader = NotedReads()

    await bind(target(account(**terms), **beside), reader)

    assert reader.lifetimes == [expected]


@pytest.mark.parametrize("said", ["soon", True, 1.5])
def test_a_lifetime_that_is_no_number_is_refused_by_its_place(said: object) -> None:
    with pytest.raises(ResolutionError, match="/auth/jwt/seconds must be a number"):
        reads_of(target(account(lifetime_pointer="1/seconds"), seconds=said))


async def test_a_token_says_whose_it_is_and_what_the_account_is_annotated_with() -> None:
    bound = await bind(target(account()), NotedReads(annotations={"role-arn": "arn:aws:iam::1:role/reader"}))

    (credential,) = bound.config.credentials
    assert isinstance(credential.value, Token)
    assert (credential.value.namespace, credential.value.name) == ("team", "robot")
    assert credential.value.uid
    assert credential.value.annotations == {"role-arn": "arn:aws:iam::1:role/reader"}


async def test_another_annotation_is_another_identity() -> None:
    """The role at the backend may come from it."""
    reader = NotedReads()
    before = await bind(target(account()), reader)
    reader.versions[ObjectKey("team", "robot")] = "2"

    after = await bind(target(account()), reader)

    assert before.identity != after.identity


@pytest.mark.parametrize(
    ("path", "reference", "expected"),
    [
        pytest.param(
            CredentialPath(POINTER, CredentialKind.SECRET_KEY, default_key="tls.crt"),
            {},
            SecretKey(POINTER, ObjectKey("team", "robot"), "tls.crt"),
            id="the default key of a reference without one",
        ),
        pytest.param(
            CredentialPath(POINTER, CredentialKind.SECRET_KEY, default_key="tls.crt"),
            {"key": "mine"},
            SecretKey(POINTER, ObjectKey("team", "robot"), "mine"),
            id="a key that is named wins",
        ),
        pytest.param(
            CredentialPath(POINTER, CredentialKind.CONFIG_MAP_KEY),
            {"key": "k"},
            ConfigMapKey(POINTER, ObjectKey("team", "robot"), "k"),
            id="a key of a ConfigMap",
        ),
        pytest.param(
            CredentialPath(POINTER, CredentialKind.OBJECT_KEY),
            {"kind": "ConfigMap", "key": "k"},
            ConfigMapKey(POINTER, ObjectKey("team", "robot"), "k"),
            id="a ConfigMap that the reference names by kind",
        ),
        pytest.param(
            CredentialPath(POINTER, CredentialKind.OBJECT_KEY),
            {"kind": "Secret", "key": "k"},
            SecretKey(POINTER, ObjectKey("team", "robot"), "k"),
            id="a Secret that the reference names by kind",
        ),
    ],
)
def test_a_reference_becomes_the_read_that_its_path_declares(
    path: CredentialPath, reference: dict[str, Any], expected: object
) -> None:
    assert reads_of(target(path, reference)) == (expected,)


@pytest.mark.parametrize(
    ("path", "reference", "says"),
    [
        pytest.param(CredentialPath(POINTER, CredentialKind.SECRET_KEY), {}, "needs a key", id="no key, no default"),
        pytest.param(
            CredentialPath(POINTER, CredentialKind.OBJECT_KEY),
            {"kind": "Pod", "key": "k"},
            "/kind must be",
            id="a kind",
        ),
    ],
)
def test_a_reference_that_names_too_little_is_refused(
    path: CredentialPath, reference: dict[str, Any], says: str
) -> None:
    with pytest.raises(ResolutionError, match=says):
        reads_of(target(path, reference))
