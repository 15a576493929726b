"""PEM: pick blocks by type, order certificate chains, list alternative names; and rsaDecrypt."""

from __future__ import annotations

from gotmpl import keys, pem, x509
from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import STRING, Functions
from gotmpl.keys import KeyFormatError
from gotmpl.values import StrSlice, to_bytes, to_text
from gotmpl.x509 import Certificate, CertificateError

FUNCTIONS = Functions()


@FUNCTIONS.add("filterPEM", params=(STRING, STRING))
def filter_pem(kind: str, text: str) -> str:
    found, rest = pem.blocks(_from_first_block(text))
    wanted = [pem.encode(block) for block in found if block.type.casefold() == kind.casefold()]
    if not wanted and rest:
        raise FuncError("error filtering pem: found junk")
    if None in wanted:
        raise FuncError("pem: cannot encode a header key that contains a colon")
    return "".join(block for block in wanted if block)


def _from_first_block(text: str) -> bytes:
    """Drop the text before the first marker, wherever in a line that is."""
    raw = to_bytes(text)
    return raw[max(raw.find(b"-----BEGIN"), 0) :]


@FUNCTIONS.add("certSANs", params=(STRING,))
def cert_sans(text: str) -> StrSlice:
    block, _ = pem.decode(_from_first_block(text))
    if block is None:
        raise FuncError("failed to decode PEM block")
    try:
        return StrSlice(x509.parse(block.content).names)
    except CertificateError as exc:
        raise FuncError(f"failed to parse certificate: {exc}") from None


@FUNCTIONS.add("filterCertChain", params=(STRING, STRING))
def filter_cert_chain(part: str, text: str) -> str:
    try:
        chain = ordered(to_bytes(text))
    except CertificateError as exc:
        raise FuncError(str(exc)) from None
    match part:
        case "leaf":
            wanted = [] if _is_root(chain[0]) else chain[:1]
        case "intermediate":
            roots = (number for number, certificate in enumerate(chain) if number and _is_root(certificate))
            wanted = chain[1 : next(roots, len(chain))]
        case "root":
            wanted = chain[-1:] if _is_root(chain[-1]) else []
        case _:
            wanted = []
    return as_pem(wanted)


def as_pem(certificates: list[Certificate]) -> str:
    return "".join(pem.encoded("CERTIFICATE", certificate.raw) for certificate in certificates)


def _is_root(certificate: Certificate) -> bool:
    return certificate.authority_key is None or certificate.authority_key == (certificate.subject_key or b"")


def ordered(raw: bytes) -> list[Certificate]:
    """Order a chain: leaf first, each certificate before the one whose key identifier it names. No trust check."""
    certificates = [x509.parse(block.content) for block in pem.blocks(raw)[0]]
    parents = [_parent(certificates, number) for number in range(len(certificates))]
    leaves = [number for number in range(len(certificates)) if number not in parents]
    if len(leaves) > 1:
        raise CertificateError("found multiple leaf or disjunct certificates")
    if not leaves:
        raise CertificateError("no leaf certificate found")
    chain: list[Certificate] = []
    following: int | None = leaves[0]
    while following is not None:
        if len(chain) == len(certificates):
            raise CertificateError("constructing chain resulted in cycle")
        chain.append(certificates[following])
        following = parents[following]
    return chain


def _parent(certificates: list[Certificate], number: int) -> int | None:
    wanted = certificates[number].authority_key or b""
    others = (other for other in range(len(certificates)) if other != number)
    return next((other for other in others if (certificates[other].subject_key or b"") == wanted), None)


@FUNCTIONS.add("rsaDecrypt", params=(STRING, STRING, STRING, STRING), cost=50)
def rsa_decrypt(scheme: str, digest: str, ciphertext: str, private_key: str) -> str:
    if scheme == "None":
        return ciphertext
    if scheme != "RSA-OAEP":
        raise FuncError("decryption scheme ", Quoted(scheme), " is not supported")
    block, _ = pem.decode(to_bytes(private_key))
    if block is None:
        raise FuncError("failed to decode PEM block")
    try:
        key = keys.from_any(block.content)
    except KeyFormatError as exc:
        raise FuncError(f"could not parse private key: {exc}") from None

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if not isinstance(key, RSAPrivateKey):
        raise FuncError("could not parse RSA private key")
    algorithms: dict[str, type[hashes.HashAlgorithm]] = {"SHA1": hashes.SHA1, "SHA512": hashes.SHA512}
    algorithm = algorithms.get(digest, hashes.SHA256)()
    try:
        plain = key.decrypt(to_bytes(ciphertext), padding.OAEP(padding.MGF1(algorithm), algorithm, None))
    except ValueError:
        raise FuncError("error decrypting data with RSA: crypto/rsa: decryption error") from None
    return to_text(plain)
