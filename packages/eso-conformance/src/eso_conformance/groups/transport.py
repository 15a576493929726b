"""Transport: no call without mutual TLS, and only from the operator."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Self

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from grpc import aio

from eso_conformance.cases import NotApplicable, Profile, case, expect, violated
from eso_conformance.subject import CALL_SECONDS, Identity, Subject, channel_to, shake_hands
from eso_wire._generated import provider_pb2 as pb
from eso_wire.versions import CURRENT, SUPPORTED

# --- Certificates that a provider must refuse ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that signs client certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls) -> Self:
        """Create an authority that no client trusts."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conformance")])
        builder = _builder(name, name, key, until=_now() + timedelta(hours=1))
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        return cls(builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Load an authority from PEM."""
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise TypeError("the authority's key is not an elliptic-curve key")
        return cls(x509.load_pem_x509_certificate(certificate), private)

    def client(self, uri: str, *, until: datetime | None = None) -> tuple[bytes, bytes]:
        """Issue a client certificate with this identity; return it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conformance-client")])
        builder = _builder(name, self.certificate.subject, key, until=until or _now() + timedelta(hours=1))
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM), key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def uris_of(certificate: bytes) -> list[str]:
    """Return the identities that a certificate names."""
    try:
        names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(_now(), until) - timedelta(hours=1))
        .not_valid_after(until)
    )


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the provider uses the real clock


_REFUSED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
_STRANGER = "spiffe://conformance.invalid/ns/conformance/sa/stranger"


@case(Profile.TLS, "tls", "refuses a connection without TLS")
async def refuses_plaintext(subject: Subject) -> None:
    async with aio.insecure_channel(subject.target.address) as channel:
        await _is_refused(channel, "a connection without TLS")


@case(Profile.TLS, "tls", "refuses a client without a certificate")
async def refuses_anonymous(subject: Subject) -> None:
    target = subject.target
    credentials = grpc.ssl_channel_credentials(target.identity.ca)
    options = [("grpc.ssl_target_name_override", target.server_name)] if target.server_name else []
    async with aio.secure_channel(target.address, credentials, options=options) as channel:
        await _is_refused(channel, "a client without a certificate")


@case(Profile.TLS, "tls", "refuses a certificate of another authority, even with the right name in it")
async def refuses_foreign_authority(subject: Subject) -> None:
    names = uris_of(subject.target.identity.certificate)
    certificate, key = Authority.make().client(names[0] if names else _STRANGER)
    await _refuses(subject, certificate, key, "a certificate of another authority")


@case(Profile.TLS, "tls", "refuses another identity of the same authority")
async def refuses_stranger(subject: Subject) -> None:
    certificate, key = _authority(subject).client(_STRANGER)
    await _refuses(subject, certificate, key, "another identity of the same authority")


@case(Profile.TLS, "tls", "refuses an expired certificate of the right identity")
async def refuses_expired(subject: Subject) -> None:
    names = uris_of(subject.target.identity.certificate)
    yesterday = datetime.now(UTC) - timedelta(days=1)  # noqa: TID251 - the provider uses the real clock
    certificate, key = _authority(subject).client(names[0] if names else _STRANGER, until=yesterday)
    await _refuses(subject, certificate, key, "an expired certificate")


@case(Profile.TLS, "tls", "refuses TLS 1.1")
async def refuses_old_tls(subject: Subject) -> None:
    host, _, port = subject.target.address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only the version matters here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        async with asyncio.timeout(CALL_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (ssl.SSLError, ConnectionError, TimeoutError):
        return
    writer.close()
    violated("TLS 1.1 was accepted")


async def _refuses(subject: Subject, certificate: bytes, key: bytes, who: str) -> None:
    target = replace(subject.target, identity=Identity(subject.target.identity.ca, certificate, key))
    async with channel_to(target) as channel:
        await _is_refused(channel, who)


async def _is_refused(channel: aio.Channel, who: str) -> None:
    try:
        await shake_hands(channel)
    except aio.AioRpcError as error:
        expect(error.code() in _REFUSED, f"{who} fails with {error.code().name}, which is not a refusal")
    else:
        violated(f"{who} was served")


def _authority(subject: Subject) -> Authority:
    if subject.target.authority is None:
        raise NotApplicable("the authority's key was not given, so no certificate of it can be made")
    return Authority.load(*subject.target.authority)


TRANSPORT = (
    refuses_plaintext,
    refuses_anonymous,
    refuses_foreign_authority,
    refuses_stranger,
    refuses_expired,
    refuses_old_tls,
)


# --- Negotiation: what a provider says about itself before any other call --------------------------------------------


_STORE_ONLY = {
    pb.OPERATION_GET,
    pb.OPERATION_GET_MAP,
    pb.OPERATION_FIND_BY_NAME,
    pb.OPERATION_FIND_BY_TAGS,
    pb.OPERATION_FIND_BY_PATH,
    pb.OPERATION_EXISTS,
    pb.OPERATION_PUSH,
    pb.OPERATION_PUSH_WHOLE_SECRET,
    pb.OPERATION_PUSH_IF_ABSENT,
    pb.OPERATION_DELETE,
}


@case(Profile.READ, "handshake", "names itself, its version and its instance")
async def names_itself(subject: Subject) -> None:
    said = subject.handshake

    expect(said.provider_name, "provider_name is empty")
    expect(said.provider_version, "provider_version is empty")
    expect(said.instance_id, "instance_id is empty, so a restart would go unnoticed")


@case(Profile.READ, "handshake", "selects the highest version that both sides speak")
async def selects_highest(subject: Subject) -> None:
    theirs = {(version.major, version.minor) for version in subject.handshake.supported}
    common = theirs & set(SUPPORTED)

    expect(common, f"no version of {sorted(theirs)} is one of ours")
    selected = (subject.handshake.selected.major, subject.handshake.selected.minor)
    expect(selected == max(common), f"selected {selected}, although both sides speak {max(common)}")


@case(Profile.READ, "handshake", "accepts each version it lists when it is the only one offered")
async def accepts_each(subject: Subject) -> None:
    for version in subject.handshake.supported:
        response = await shake_hands(subject.channel, [(version.major, version.minor)])

        expect(
            (response.selected.major, response.selected.minor) == (version.major, version.minor),
            f"{version.major}.{version.minor} is listed as supported and not accepted",
        )


@case(Profile.READ, "handshake", "leaves `selected` unset for a version it does not speak, and says which it does")
async def refuses_unknown(subject: Subject) -> None:
    response = await shake_hands(subject.channel, [(CURRENT.major + 7, 0)])

    expect(not response.HasField("selected"), "a version from the future was accepted")
    expect(response.supported, "an incompatible core is not told which versions would do")


@case(Profile.READ, "handshake", "keeps its instance id while it runs")
async def has_stable_instance(subject: Subject) -> None:
    again = await shake_hands(subject.channel)

    expect(again.instance_id == subject.handshake.instance_id, "instance_id changed without a restart")


@case(Profile.READ, "handshake", "gives every kind a role, operations that fit it, and a way to get its configuration")
async def kinds_are_complete(subject: Subject) -> None:
    expect(subject.handshake.kinds, "no kind is served")
    for kind in subject.handshake.kinds:
        name = kind.gvk.kind or kind.v1_provider_key
        expect(name, "a kind has no name")
        expect(kind.operations, f"{name} has no operation")
        expect(kind.deliveries, f"{name} names no delivery of its configuration")
        roles = (pb.KIND_ROLE_STORE, pb.KIND_ROLE_GENERATOR)
        expect(kind.role in roles, f"{name} is neither a store nor a generator")
        if kind.role == pb.KIND_ROLE_GENERATOR:
            expect(not _STORE_ONLY & set(kind.operations), f"the generator {name} offers an operation of stores")


@case(Profile.READ, "handshake", "uses no feature that core did not name")
async def invents_no_feature(subject: Subject) -> None:
    response = await shake_hands(subject.channel)

    expect(not response.features, "the answer names a feature that the request does not offer")


HANDSHAKE = (
    names_itself,
    selects_highest,
    accepts_each,
    refuses_unknown,
    has_stable_instance,
    kinds_are_complete,
    invents_no_feature,
)
