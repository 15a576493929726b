"""Transport: no call without mutual TLS, and only from the operator."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
from grpc import aio

from eso_conformance.cases import NotApplicable, Profile, case, expect, violated
from eso_conformance.certificates import Authority, uris_of
from eso_conformance.subject import CALL_SECONDS, Identity, Subject, channel_to, shake_hands

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


CASES = (
    refuses_plaintext,
    refuses_anonymous,
    refuses_foreign_authority,
    refuses_stranger,
    refuses_expired,
    refuses_old_tls,
)
