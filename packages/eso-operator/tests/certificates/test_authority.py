"""X.509: a strict verifier accepts the issued certificates, and every defect is reported by name."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from eso_api.values import SecretBytes
from eso_operator.certificates import authority
from eso_operator.certificates.authority import issue_authority, issue_client, issue_server
from eso_operator.certificates.problems import ProblemName
from eso_operator.certificates.state import MAX_PEM_BYTES, Credential, Identity, Side, window
from kubebase.clock import SystemClock
from kubebase.testing.clock import START

YEAR, MONTH = timedelta(days=365), timedelta(days=30)


def certificate(credential: Credential) -> x509.Certificate:
    return x509.load_pem_x509_certificate(credential.certificate)


def extension(of: Credential, kind: Any) -> Any:
    return certificate(of).extensions.get_extension_for_class(kind).value


def test_an_authority_signs_leaves_only_and_is_named_after_its_service() -> None:
    made = issue_authority("team/provider-fake", window(START, YEAR))

    assert extension(made, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    assert certificate(made).subject.rfc4514_string().startswith("CN=team/provider-fake CA ")
    assert isinstance(certificate(made).public_key(), ec.EllipticCurvePublicKey)


def test_two_authorities_of_one_service_differ_in_serial_and_subject() -> None:
    one, other = (certificate(issue_authority("team/p", window(START, YEAR))) for _ in range(2))

    assert one.serial_number != other.serial_number
    assert one.subject != other.subject


def test_a_server_is_named_by_its_four_dns_forms_and_its_spiffe_id(identity: Identity) -> None:
    made = issue_server(issue_authority("a", window(START, YEAR)), identity.server, window(START, MONTH))

    assert authority.names_of(made.certificate) == {
        "provider-fake",
        "provider-fake.team",
        "provider-fake.team.svc",
        "provider-fake.team.svc.cluster.local",
        "spiffe://cluster.local/ns/team/svc/provider-fake",
    }
    assert list(extension(made, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_server_beside_us_is_also_named_by_its_addresses(identity: Identity) -> None:
    names = replace(identity.server, addresses=("127.0.0.1", "::1"))

    made = issue_server(issue_authority("a", window(START, YEAR)), names, window(START, MONTH))

    assert {"127.0.0.1", "::1"} <= authority.names_of(made.certificate)


def test_a_client_is_named_by_its_spiffe_id_alone(identity: Identity) -> None:
    made = issue_client(issue_authority("a", window(START, YEAR)), identity.client, window(START, MONTH))

    assert authority.names_of(made.certificate) == {"spiffe://cluster.local/ns/eso/sa/external-secrets"}
    assert list(extension(made, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_validity_begins_five_minutes_ago_and_no_leaf_outlives_its_authority(identity: Identity) -> None:
    issuer = issue_authority("a", window(START, MONTH))

    leaf = issue_client(issuer, identity.client, window(START, YEAR))

    valid = authority.validity_of(leaf.certificate)
    assert valid.not_before == START - timedelta(minutes=5)
    assert valid.not_after == START + MONTH


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (
        certificate(issue_authority("n" * 63 + "/" + "s" * 60 + end, window(START, YEAR))) for end in ("a", "b")
    )

    cut = [str(each.subject.rfc4514_string()).rpartition(" ")[0] for each in (one, other)]
    assert cut[0] != cut[1]
    assert all(len(each.subject.rfc4514_string()) <= 64 + len("CN=") for each in (one, other))


def test_both_sides_complete_a_tls_handshake_and_the_server_sees_the_client_id(
    identity: Identity, handshake: Callable[..., str]
) -> None:
    now = SystemClock().now()
    issuer = issue_authority("a", window(now, YEAR))
    trust = [issuer.certificate]

    seen = handshake(
        issue_server(issuer, identity.server, window(now, MONTH)),
        trust,
        issue_client(issuer, identity.client, window(now, MONTH)),
        trust,
    )

    assert seen == identity.client


def test_a_client_of_another_services_authority_is_refused(identity: Identity, handshake: Callable[..., str]) -> None:
    """R136: certificates of one provider are of no use at another one."""
    now = SystemClock().now()
    ours, theirs = (issue_authority(name, window(now, YEAR)) for name in ("a", "b"))
    server = issue_server(ours, identity.server, window(now, MONTH))
    client = issue_client(theirs, identity.client, window(now, MONTH))

    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.verify.failed|unknown.ca"):
        handshake(server, [ours.certificate], client, [ours.certificate])


ISSUER = issue_authority("a", window(START, YEAR))
OTHER = issue_authority("b", window(START, YEAR))
EXPIRED = issue_authority("c", window(START - 2 * YEAR, YEAR))


def broken_leaves(identity: Identity) -> dict[ProblemName | None, tuple[Credential, datetime]]:
    good = issue_server(ISSUER, identity.server, window(START, MONTH))
    return {
        None: (good, START),
        ProblemName.SERVER_CERT_EXPIRED: (good, START + MONTH),
        ProblemName.NOT_YET_VALID: (good, START - timedelta(hours=1)),
        ProblemName.UNKNOWN_CA: (issue_server(OTHER, identity.server, window(START, MONTH)), START),
        ProblemName.KEY_MISMATCH: (replace(good, key=OTHER.key), START),
        ProblemName.MALFORMED: (replace(good, certificate=b"nonsense"), START),
        ProblemName.HOSTNAME_MISMATCH: (
            issue_server(ISSUER, replace(identity.server, dns=("provider-fake",)), window(START, MONTH)),
            START,
        ),
    }


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(None, id="a good leaf has no problem"),
        pytest.param(ProblemName.SERVER_CERT_EXPIRED, id="R137 an expired leaf is expired"),
        pytest.param(ProblemName.NOT_YET_VALID, id="a leaf from the future is not yet valid"),
        pytest.param(ProblemName.UNKNOWN_CA, id="R136 a leaf of another authority is of an unknown CA"),
        pytest.param(ProblemName.KEY_MISMATCH, id="a leaf with another key does not fit"),
        pytest.param(ProblemName.MALFORMED, id="a leaf that is no PEM is malformed"),
        pytest.param(ProblemName.HOSTNAME_MISMATCH, id="R136 a leaf without the full name has the wrong name"),
    ],
)
def test_a_leaf_is_judged(identity: Identity, expected: ProblemName | None) -> None:
    leaf, now = broken_leaves(identity)[expected]

    problem = authority.leaf_problem(leaf, [ISSUER.certificate], identity.wanted(Side.SERVER), now)

    assert (problem and problem.name) == expected


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        pytest.param(ISSUER, None, id="a good one may sign"),
        pytest.param(EXPIRED, ProblemName.AUTHORITY_EXPIRED, id="an expired one may not"),
        pytest.param(replace(ISSUER, key=OTHER.key), ProblemName.KEY_MISMATCH, id="one without its key may not"),
        pytest.param(
            replace(ISSUER, key=SecretBytes(b"")), ProblemName.KEY_MISMATCH, id="one with an empty key may not"
        ),
        pytest.param(Credential(b"", ISSUER.key), ProblemName.MALFORMED, id="an empty certificate is malformed"),
    ],
)
def test_an_authority_is_judged(issuer: Credential, expected: ProblemName | None) -> None:
    problem = authority.authority_problem(issuer, START)

    assert (problem and problem.name) == expected


def test_a_bundle_is_read_in_one_form_without_repeats() -> None:
    messy = b"# a comment\n" + ISSUER.certificate.strip() + b"\n\n" + OTHER.certificate + ISSUER.certificate

    assert authority.split(messy) == (ISSUER.certificate, OTHER.certificate)


@pytest.mark.parametrize(
    "bundle", [pytest.param(b"", id="empty"), pytest.param(b"x" * (MAX_PEM_BYTES + 1), id="too large")]
)
def test_a_bundle_that_is_none_is_refused(bundle: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        authority.split(bundle)


def test_nothing_prints_a_key() -> None:
    secret = ISSUER.key.reveal().decode().splitlines()[1]

    assert secret not in repr(ISSUER)
    assert "<secret>" in repr(ISSUER)
