"""PKCS#12 keystores and trust stores, from and to PEM."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from eso_render.functions import keystore
from eso_render.functions.keystore import KeystoreError, attribute, certificate_bag
from eso_render.functions.pem import as_pem, ordered
from gotmpl import der, keys, pem, x509
from gotmpl.der import BMP_STRING, DerError, element, identifier, octets, sequence
from gotmpl.errors import FuncError
from gotmpl.functions import STRING, Functions
from gotmpl.keys import KeyFormatError
from gotmpl.values import to_bytes
from gotmpl.x509 import Certificate, CertificateError

FUNCTIONS = Functions()
COST = 200
_NO_BLOCK = "runtime error: invalid memory address or nil pointer dereference"
"""Go's message if no PEM block is found, which users know from the original."""


def _opened(data: str, password: str) -> tuple[Any, list[Certificate]]:
    """Return the private key, and every certificate in file order."""
    found, opened_with = keystore.bags(to_bytes(data), keystore.encoded_password(password))
    key: Any = None
    certificates: list[Certificate] = []
    for kind, value in found:
        match kind:
            case keystore.CERT_BAG:
                certificates.append(x509.parse(_certificate(value)))
            case keystore.KEY_BAG | keystore.SHROUDED_KEY_BAG:
                if key is not None:
                    raise KeystoreError("pkcs12: expected exactly one key bag")
                key = keys.from_pkcs8(value) if kind == keystore.KEY_BAG else _shrouded(value, opened_with)
            case _:
                pass
    if not certificates:
        raise KeystoreError("pkcs12: certificate missing")
    if key is None:
        raise KeystoreError("pkcs12: private key missing")
    return key, certificates


def _hint(data: str) -> str:
    """Return what to do about a file that is still encoded: Base64 text of DER begins with these letters."""
    return "the value is Base64 text: set decodingStrategy: Base64, or apply b64dec first" if data[:2] == "MI" else ""


def _certificate(value: bytes) -> bytes:
    try:
        kind, wrapped = der.expect(value, der.SEQUENCE).children()
        content = der.expect(wrapped.content, der.OCTET_STRING).content
    except (DerError, ValueError) as exc:
        raise KeystoreError(f"pkcs12: error decoding cert bag: {exc}") from None
    if der.oid(kind) != keystore.X509_CERTIFICATE:
        raise KeystoreError("pkcs12: only X509 certificates are supported in cert bags")
    return content


def _shrouded(value: bytes, password: bytes) -> Any:
    algorithm, data = der.expect(value, der.SEQUENCE).children()
    try:
        plain = keystore.decrypted(algorithm, data.content, password)
    except KeystoreError as exc:
        raise KeystoreError(f"pkcs12: error decrypting PKCS#8 shrouded key bag: {exc}") from None
    try:
        return keys.from_pkcs8(plain)
    except KeyFormatError as exc:
        raise KeystoreError(f"pkcs12: error parsing PKCS#8 private key: {exc}") from None


@FUNCTIONS.add("pkcs12keyPass", params=(STRING, STRING), cost=COST)
def pkcs12_key_pass(password: str, data: str) -> str:
    try:
        key, _ = _opened(data, password)
    except ValueError as exc:
        raise FuncError(f"unable to decode pkcs12 with password: {exc}", hint=_hint(data)) from None
    return pem.encoded("PRIVATE KEY", keys.to_pkcs8(key))


@FUNCTIONS.add("pkcs12key", params=(STRING,), cost=COST)
def pkcs12_key(data: str) -> str:
    return pkcs12_key_pass("", data)


@FUNCTIONS.add("pkcs12certPass", params=(STRING, STRING), cost=COST)
def pkcs12_cert_pass(password: str, data: str) -> str:
    try:
        _, certificates = _opened(data, password)
    except ValueError as exc:
        raise FuncError(f"unable to decode pkcs12 certificate with password: {exc}", hint=_hint(data)) from None
    as_found = as_pem(certificates)
    try:
        return as_pem(ordered(to_bytes(as_found)))
    except CertificateError:
        return as_found


@FUNCTIONS.add("pkcs12cert", params=(STRING,), cost=COST)
def pkcs12_cert(data: str) -> str:
    return pkcs12_cert_pass("", data)


@FUNCTIONS.add("pemToPkcs12Pass", params=(STRING, STRING, STRING), cost=COST)
def pem_to_pkcs12_pass(cert: str, key: str, password: str) -> str:
    block, _ = pem.decode(to_bytes(cert))
    return _keystore([_parsed(block)], key, password)


@FUNCTIONS.add("pemToPkcs12", params=(STRING, STRING), cost=COST)
def pem_to_pkcs12(cert: str, key: str) -> str:
    return pem_to_pkcs12_pass(cert, key, "")


@FUNCTIONS.add("fullPemToPkcs12Pass", params=(STRING, STRING, STRING), cost=COST)
def full_pem_to_pkcs12_pass(cert: str, key: str, password: str) -> str:
    block, rest = pem.decode(to_bytes(cert))
    return _keystore([_parsed(block), *_all(rest)], key, password)


@FUNCTIONS.add("fullPemToPkcs12", params=(STRING, STRING), cost=COST)
def full_pem_to_pkcs12(cert: str, key: str) -> str:
    return full_pem_to_pkcs12_pass(cert, key, "")


@FUNCTIONS.add("pemTruststoreToPKCS12Pass", params=(STRING, STRING), cost=COST)
def pem_truststore_to_pkcs12_pass(certs: str, password: str) -> str:
    certificates = _all(to_bytes(certs))
    try:
        opened_with = keystore.encoded_password(password)
        bags = [certificate_bag(certificate.raw, _trusted(certificate)) for certificate in certificates]
    except KeystoreError as exc:
        raise FuncError(str(exc)) from None
    return base64.b64encode(keystore.file(bags, None, opened_with)).decode()


@FUNCTIONS.add("pemTruststoreToPKCS12", params=(STRING,), cost=COST)
def pem_truststore_to_pkcs12(certs: str) -> str:
    return pem_truststore_to_pkcs12_pass(certs, "")


def _parsed(block: pem.Block | None) -> Certificate:
    if block is None:
        raise FuncError(_NO_BLOCK)
    try:
        return x509.parse(block.content)
    except CertificateError as exc:
        raise FuncError(str(exc)) from None


def _all(raw: bytes) -> list[Certificate]:
    """Parse every certificate; as in the original, anything after the last block is an error."""
    out: list[Certificate] = []
    while raw:
        block, raw = pem.decode(raw)
        out.append(_parsed(block))
    return out


def _trusted(certificate: Certificate) -> list[bytes]:
    name = keystore.encoded_password(certificate.subject)[:-2]
    return [
        attribute(keystore.FRIENDLY_NAME, element(BMP_STRING, name)),
        attribute(keystore.JAVA_TRUSTED, identifier(keystore.ANY_USAGE)),
    ]


def _keystore(certificates: list[Certificate], key: str, password: str) -> str:
    block, _ = pem.decode(to_bytes(key))
    if block is None:
        raise FuncError(_NO_BLOCK)
    try:
        parsed = keys.from_any(block.content)
        opened_with = keystore.encoded_password(password)
    except ValueError as exc:
        raise FuncError(str(exc)) from None
    leaf = certificates[0].raw
    digest = hashlib.sha1(leaf).digest()  # noqa: S324 an identifier the format prescribes, not a signature
    local_key = attribute(keystore.LOCAL_KEY_ID, octets(digest))
    algorithm, ciphertext = keystore.sealed(keys.to_pkcs8(parsed), opened_with)
    shrouded = keystore.bag(keystore.SHROUDED_KEY_BAG, sequence(algorithm, octets(ciphertext)), [local_key])
    bags = [certificate_bag(leaf, [local_key]), *(certificate_bag(other.raw, []) for other in certificates[1:])]
    return base64.b64encode(keystore.file(bags, shrouded, opened_with)).decode()
