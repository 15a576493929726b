"""The three Secrets of a Service: their names, their content both ways, and whose they are."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from eso_operator.certificates import issuance, secrets
from eso_operator.certificates.issuance import carry_out, plan
from eso_operator.certificates.problems import ProblemName
from eso_operator.certificates.secrets import CLIENT, ISSUER, SERVER, CertificateOwner, SecretMetadata, SecretObject
from eso_operator.certificates.state import Identity, Lifetimes, PrepareAuthority, State, SwitchAuthority
from eso_operator.stores.resolved import ServiceKey
from kubebase.clock import rfc3339
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START

LIFETIMES = Lifetimes()


@pytest.fixture
def state(identity: Identity) -> State:
    state = State()
    while steps := plan(state, START, LIFETIMES, identity).steps:
        for step in steps:
            state = carry_out(step, state, START, LIFETIMES, identity)
    return state


def stored(document: dict[str, Any]) -> SecretObject:
    """As an API server would give it back."""
    metadata = {**document["metadata"], "uid": "u", "resourceVersion": "7"}
    return msgspec.json.decode(msgspec.json.encode({**document, "metadata": metadata}), type=SecretObject)


# --- names -----------------------------------------------------------------------------------------------------------


def test_the_secrets_are_named_after_the_service(service: ServiceKey) -> None:
    keys = secrets.keys_of(service, "eso")

    assert keys.server == ObjectKey("team", "provider-fake-provider-tls")
    assert keys.client == ObjectKey("eso", "team.provider-fake-client-tls")
    assert keys.issuer == ObjectKey("eso", "team.provider-fake-issuer")


@pytest.mark.parametrize(
    "length", [pytest.param(253 - 7, id="the longest that fits"), pytest.param(400, id="one that does not")]
)
def test_a_name_fits_and_two_long_ones_differ(length: int) -> None:
    one, other = (secrets.bounded_name("s" * (length - 1) + end, "-issuer") for end in "ab")

    assert max(len(one), len(other)) <= 253
    assert one != other
    assert one.endswith("-issuer")


# --- content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((), id="steady"),
        pytest.param((PrepareAuthority(),), id="publishing"),
        pytest.param((PrepareAuthority(), SwitchAuthority()), id="retiring"),
    ],
)
def test_an_issuer_comes_back_as_it_was_stored(identity: Identity, state: State, steps: tuple[Any, ...]) -> None:
    for step in steps:
        state = carry_out(step, state, START, LIFETIMES, identity)
    assert state.issuer is not None

    data = secrets.issuer_data(state.issuer)

    assert issuance.issuer_of(data) == state.issuer
    assert {"tls.crt", "tls.key", "ca.crt"} <= set(data)


def test_a_leaf_comes_back_as_it_was_stored(state: State) -> None:
    assert state.server is not None

    data = secrets.leaf_data(state.server)

    assert issuance.leaf_of(data, rfc3339(state.server.written_at)) == state.server
    assert set(data) == {"tls.crt", "tls.key", "ca.crt"}


@pytest.mark.parametrize(
    ("change", "written_at"),
    [
        pytest.param({"tls.crt": b"nonsense"}, "2030-01-01T00:00:00Z", id="a certificate that is none"),
        pytest.param({"ca.crt": b""}, "2030-01-01T00:00:00Z", id="an empty bundle"),
        pytest.param({}, "", id="no time"),
        pytest.param({}, "yesterday", id="a time that is none"),
        pytest.param({}, "2030-01-01T00:00:00", id="a time without a zone"),
    ],
)
def test_content_that_does_not_hold_together_counts_as_absent(
    state: State, change: dict[str, bytes], written_at: str
) -> None:
    assert state.server is not None
    data = {**secrets.leaf_data(state.server), **change}

    assert issuance.leaf_of(data, written_at) is None


def test_an_issuer_without_a_key_counts_as_absent() -> None:
    assert issuance.issuer_of({}) is None


# --- documents -------------------------------------------------------------------------------------------------------


def test_a_patch_fits_one_version_and_removes_what_a_phase_left_behind(
    identity: Identity, state: State, service: ServiceKey
) -> None:
    published = carry_out(PrepareAuthority(), state, START, LIFETIMES, identity)
    assert published.issuer is not None
    assert state.issuer is not None
    key, mark = secrets.keys_of(service, "eso").issuer, SecretMetadata(ISSUER, CertificateOwner(service, "eso"), START)
    before = stored(secrets.new_document(key, mark, secrets.issuer_data(published.issuer)))

    patch = secrets.patch_of(before, mark, secrets.issuer_data(state.issuer))

    assert patch["metadata"]["resourceVersion"] == "7"
    assert (patch["data"]["next.crt"], patch["data"]["next.key"]) == (None, None)
    assert base64.b64decode(patch["data"]["tls.crt"]) == state.issuer.current.certificate


CLIENT_OF_OURS = {secrets.PART_LABEL: CLIENT, secrets.ISSUED_BY_LABEL: "eso"}

# --- whose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "annotations", "ours"),
    [
        pytest.param(CLIENT_OF_OURS, {secrets.SERVICE_ANNOTATION: "team/provider-fake"}, True, id="marked: ours"),
        pytest.param(
            {**CLIENT_OF_OURS, secrets.ISSUED_BY_LABEL: "other"},
            {secrets.SERVICE_ANNOTATION: "team/provider-fake"},
            False,
            id="marked by another operator",
        ),
        pytest.param({}, {}, False, id="no marks: a user's"),
        pytest.param(
            {secrets.MANAGED_LABEL: "external-secrets"}, {}, False, id="the label of a target Secret: a user's"
        ),
        pytest.param(
            {**CLIENT_OF_OURS, secrets.PART_LABEL: SERVER},
            {secrets.SERVICE_ANNOTATION: "team/provider-fake"},
            False,
            id="another part",
        ),
        pytest.param(CLIENT_OF_OURS, {secrets.SERVICE_ANNOTATION: "team/other"}, False, id="another Service"),
        pytest.param(CLIENT_OF_OURS, {secrets.SERVICE_ANNOTATION: "nonsense"}, False, id="no Service"),
    ],
)
def test_a_secret_is_ours_only_with_all_marks(
    service: ServiceKey, labels: dict[str, str], annotations: dict[str, str], ours: bool
) -> None:
    secret = SecretObject()
    secret.metadata.labels, secret.metadata.annotations = labels, annotations

    problem = secrets.ownership_problem(secret.metadata, CLIENT, CertificateOwner(service, "eso"))

    assert (problem is None) == ours
    assert ours or (problem is not None and problem.name is ProblemName.SECRET_NOT_OURS)


def test_no_form_of_a_secret_prints_its_content(state: State, service: ServiceKey) -> None:
    assert state.server is not None
    document = secrets.new_document(
        ObjectKey("team", "s"),
        SecretMetadata(SERVER, CertificateOwner(service, "eso"), START),
        secrets.leaf_data(state.server),
    )
    secret = stored(document)
    line = state.server.credential.key.reveal().decode().splitlines()[1]

    printed = [repr(form) for form in (secret, state, state.server, replace(state, client=None))]
    printed.append(logging.Formatter().format(logging.LogRecord("n", 20, "p", 1, "%s", (secret,), None)))

    assert not [text for text in printed if line in text or base64.b64encode(line.encode()).decode()[4:40] in text]
