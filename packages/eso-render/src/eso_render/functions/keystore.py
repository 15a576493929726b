"""Read and write PKCS#12 files. The template functions are in pkcs12.py.

Reading accepts what go-pkcs12 accepts: DER, a MAC of SHA-1, SHA-256 or SHA-512 (or none with an empty password),
contents in plain text or encrypted with PBES1 (3DES, RC2) or PBES2 (AES). Writing uses PBES2 with AES-256 and a SHA-256
MAC.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from gotmpl import der
from gotmpl.der import DerError, Element, element, identifier, number, octets, sequence, set_of

DATA, ENCRYPTED_DATA = "1.2.840.113549.1.7.1", "1.2.840.113549.1.7.6"
KEY_BAG, SHROUDED_KEY_BAG, CERT_BAG = (f"1.2.840.113549.1.12.10.1.{number}" for number in (1, 2, 3))
X509_CERTIFICATE = "1.2.840.113549.1.9.22.1"
FRIENDLY_NAME, LOCAL_KEY_ID = "1.2.840.113549.1.9.20", "1.2.840.113549.1.9.21"
JAVA_TRUSTED, ANY_USAGE = "2.16.840.1.113894.746875.1.1", "2.5.29.37.0"
_PBES2, _PBKDF2, _PBMAC1 = "1.2.840.113549.1.5.13", "1.2.840.113549.1.5.12", "1.2.840.113549.1.5.14"
_3DES, _RC2_128, _RC2_40 = (f"1.2.840.113549.1.12.1.{number}" for number in (3, 5, 6))
_AES_SIZES = {"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32}
_AES_256 = "2.16.840.1.101.3.4.1.42"
_HMACS = {"1.2.840.113549.2.7": "sha1", "1.2.840.113549.2.9": "sha256", "1.2.840.113549.2.11": "sha512"}
_HMAC_SHA256 = "1.2.840.113549.2.9"
_DIGESTS = {"1.3.14.3.2.26": "sha1", "2.16.840.1.101.3.4.2.1": "sha256", "2.16.840.1.101.3.4.2.3": "sha512"}
_SHA256 = "2.16.840.1.101.3.4.2.1"
ITERATIONS = 2048
MAX_ITERATIONS = 1_000_000
"""More than any tool writes; a file that asks for more would only waste time."""
WRONG_PASSWORD = "pkcs12: decryption password incorrect"  # noqa: S105 a message
EMPTY = b"\0\0"


class KeystoreError(ValueError):
    """Why a file cannot be read, in Go's words; it never contains file content."""


def encoded_password(text: str) -> bytes:
    """Encode a password as UCS-2 with a terminating zero."""
    if any(ord(char) > 0xFFFF for char in text):
        raise KeystoreError("pkcs12: string contains characters that cannot be encoded in UCS-2")
    clean = "".join("\ufffd" if 0xD800 <= ord(char) < 0xE000 else char for char in text)
    return clean.encode("utf-16-be") + b"\0\0"


def bags(data: bytes, password: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """Return type and value of every bag, and the password that opened the file (an empty one may mean none)."""
    try:
        return _bags(data, password)
    except (DerError, IndexError) as exc:
        reason = str(exc) if isinstance(exc, DerError) else "asn1: syntax error: sequence truncated"
        raise KeystoreError(f"pkcs12: error reading P12 data: {reason}") from None


def _bags(data: bytes, password: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    version, safe, *mac = der.expect(data, der.SEQUENCE).children()
    if der.integer(version) != 3:
        raise KeystoreError("pkcs12: can only decode v3 PFX PDU's")
    kind, *content = safe.children()
    if der.oid(kind) != DATA:
        raise KeystoreError("pkcs12: only password-protected PFX is implemented")
    body = der.first(content[0].content).content
    if mac:
        password = _checked(mac[0], body, password)
    elif password != EMPTY:
        raise KeystoreError("pkcs12: no MAC in data")
    contents = der.expect(body, der.SEQUENCE).children()
    if not 1 <= len(contents) <= 2:
        raise KeystoreError(
            f"pkcs12: expected between 1 and 2 items in the authenticated safe, but this file has {len(contents)}"
        )
    out: list[tuple[str, bytes]] = []
    for entry in contents:
        for bag in der.expect(_opened(entry, password), der.SEQUENCE).children():
            kind, value, *_ = bag.children()
            out.append((der.oid(kind), value.content))
    return out, password


def _checked(mac: Element, message: bytes, password: bytes) -> bytes:
    """Return the password if the MAC confirms it."""
    for attempt in (password, b"") if password == EMPTY else (password,):
        if hmac.compare_digest(_mac(mac, message, attempt), mac.children()[0].children()[1].content):
            return attempt
    raise KeystoreError(WRONG_PASSWORD)


def _mac(mac: Element, message: bytes, password: bytes) -> bytes:
    info, salt, *rest = mac.children()
    algorithm = info.children()[0]
    kind = der.oid(algorithm.children()[0])
    if kind == _PBMAC1:
        return _pbmac1(algorithm.children()[1], message, password)
    digest = _DIGESTS.get(kind)
    if digest is None:
        raise KeystoreError(f"pkcs12: MAC digest algorithm not supported: {kind}")
    rounds = der.integer(rest[0]) if rest else 1
    key = derived(digest, salt.content, password, rounds, purpose=3, size=hashlib.new(digest).digest_size)
    return hmac.digest(key, message, digest)


def _pbmac1(parameters: Element, message: bytes, password: bytes) -> bytes:
    kdf, mac = parameters.children()
    size = next((der.integer(part) for part in kdf.children()[1].children()[2:] if part.tag == der.INTEGER), 0)
    if not 0 < size <= 1024:
        raise KeystoreError("pkcs12: PBMAC1 requires explicit KeyLength parameter in PBKDF2 parameters")
    digest = _HMACS.get(der.oid(mac.children()[0]))
    if digest is None:
        raise KeystoreError("pkcs12: PBMAC1 MAC algorithm is not supported")
    return hmac.digest(_pbkdf2(kdf, password, size), message, digest)


def _rounds(count: int) -> int:
    if not 0 < count <= MAX_ITERATIONS:
        raise KeystoreError(f"pkcs12: {count} iterations are outside 1 to {MAX_ITERATIONS}")
    return count


def derived(digest: str, salt: bytes, password: bytes, rounds: int, *, purpose: int, size: int) -> bytes:
    """Derive key material as in RFC 7292, appendix B: purpose 1 is a key, 2 an IV, 3 a MAC key."""
    hashed = {"sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha512": hashlib.sha512}[digest]
    width = hashed().block_size
    filled = _repeated(salt, width) + _repeated(password, width)
    out = b""
    while len(out) < size:
        block = bytes([purpose]) * width + filled
        for _ in range(_rounds(rounds)):
            block = hashed(block).digest()
        out += block
        addend = int.from_bytes(_repeated(block, width)[:width], "big") + 1
        filled = b"".join(
            ((int.from_bytes(filled[at : at + width], "big") + addend) % (1 << 8 * width)).to_bytes(width, "big")
            for at in range(0, len(filled), width)
        )
    return out[:size]


def _repeated(data: bytes, width: int) -> bytes:
    if not data:
        return b""
    size = width * ((len(data) + width - 1) // width)
    return (data * (size // len(data) + 1))[:size]


def _opened(entry: Element, password: bytes) -> bytes:
    kind, content = entry.children()
    match der.oid(kind):
        case "1.2.840.113549.1.7.1":
            return der.expect(content.content, der.OCTET_STRING).content
        case "1.2.840.113549.1.7.6":
            _, info = der.expect(content.content, der.SEQUENCE).children()
            _, algorithm, *rest = info.children()
            return decrypted(algorithm, rest[0].content if rest else b"", password)
        case _:
            raise KeystoreError("pkcs12: only data and encryptedData content types are supported in authenticated safe")


def decrypted(algorithm: Element, data: bytes, password: bytes) -> bytes:
    kind, parameters = algorithm.children()
    name = der.oid(kind)
    if name == _PBES2:
        plain, block = _pbes2(parameters, data, password), 16
    elif name in {_3DES, _RC2_128, _RC2_40}:
        plain, block = _pbes1(name, parameters, data, password), 8
    else:
        raise KeystoreError(f"pkcs12: pbe algorithm {name} is not supported")
    padding = plain[-1] if plain else 0
    if not 0 < padding <= block or plain[-padding:] != bytes([padding]) * padding:
        raise KeystoreError("pkcs12: decryption error, incorrect padding")
    return plain[:-padding]


def _pbes1(name: str, parameters: Element, data: bytes, password: bytes) -> bytes:
    salt, rounds = parameters.children()
    size = {_3DES: 24, _RC2_128: 16, _RC2_40: 5}[name]
    key = derived("sha1", salt.content, password, der.integer(rounds), purpose=1, size=size)
    iv = derived("sha1", salt.content, password, der.integer(rounds), purpose=2, size=8)
    if len(data) % 8 or not data:
        raise KeystoreError("pkcs12: input is not a multiple of the block size")
    if name == _3DES:
        from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES

        return _cbc(TripleDES(key), iv, data)
    return decrypt_cbc(key, iv, data)


def _pbes2(parameters: Element, data: bytes, password: bytes) -> bytes:
    kdf, scheme = parameters.children()
    cipher, iv = scheme.children()
    size = _AES_SIZES.get(der.oid(cipher))
    if size is None:
        raise KeystoreError(f"pkcs12: pbes2 algorithm {der.oid(cipher)} is not supported")
    if len(data) % 16 or not data or len(iv.content) != 16:
        raise KeystoreError("pkcs12: input is not a multiple of the block size")
    return _cbc(_aes(_pbkdf2(kdf, password, size)), iv.content, data)


def _pbkdf2(kdf: Element, password: bytes, size: int) -> bytes:
    kind, parameters = kdf.children()
    if der.oid(kind) != _PBKDF2:
        raise KeystoreError(f"pkcs12: pbes2 kdf algorithm {der.oid(kind)} is not supported")
    salt, rounds, *rest = parameters.children()
    prf = next((part for part in rest if part.tag == der.SEQUENCE), None)
    name = der.oid(prf.children()[0]) if prf else "1.2.840.113549.2.7"
    if name not in _HMACS:
        raise KeystoreError(f"pkcs12: pbes2 prf {name} is not supported")
    return hashlib.pbkdf2_hmac(_HMACS[name], _as_utf8(password), salt.content, _rounds(der.integer(rounds)), size)


def _as_utf8(password: bytes) -> bytes:
    """Convert the password to UTF-8, which newer schemes use; older ones use UCS-2."""
    return password[:-2].decode("utf-16-be", "replace").encode()


def _aes(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.algorithms import AES

    return AES(key)


def _cbc(algorithm: Any, iv: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    decryptor = Cipher(algorithm, modes.CBC(iv)).decryptor()
    return decryptor.update(data) + decryptor.finalize()


def sealed(plain: bytes, password: bytes) -> tuple[bytes, bytes]:
    """Encrypt with PBES2 and AES-256; return algorithm identifier and ciphertext."""
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    salt, iv = secrets.token_bytes(16), secrets.token_bytes(16)
    padding = 16 - len(plain) % 16
    key = hashlib.pbkdf2_hmac("sha256", _as_utf8(password), salt, ITERATIONS, 32)
    encryptor = Cipher(_aes(key), modes.CBC(iv)).encryptor()
    kdf = sequence(identifier(_PBKDF2), sequence(octets(salt), number(ITERATIONS), sequence(identifier(_HMAC_SHA256))))
    scheme = sequence(identifier(_AES_256), octets(iv))
    algorithm = sequence(identifier(_PBES2), sequence(kdf, scheme))
    return algorithm, encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()


def file(certificates: list[bytes], shrouded_key: bytes | None, password: bytes) -> bytes:
    """Build a keystore: encrypted certificate bags, and the key bag if there is one."""
    algorithm, ciphertext = sealed(sequence(*certificates), password)
    info = sequence(identifier(DATA), algorithm, element(0x80, ciphertext))
    contents = [_content(ENCRYPTED_DATA, sequence(number(0), info))]
    if shrouded_key is not None:
        contents.append(_content(DATA, octets(sequence(shrouded_key))))
    body = sequence(*contents)
    salt = secrets.token_bytes(16)
    digest = hmac.digest(derived("sha256", salt, password, ITERATIONS, purpose=3, size=32), body, "sha256")
    mac = sequence(sequence(sequence(identifier(_SHA256)), octets(digest)), octets(salt), number(ITERATIONS))
    return sequence(number(3), _content(DATA, octets(body)), mac)


def _content(kind: str, content: bytes) -> bytes:
    return sequence(identifier(kind), element(0xA0, content))


def certificate_bag(certificate: bytes, attributes: list[bytes]) -> bytes:
    value = sequence(identifier(X509_CERTIFICATE), element(0xA0, octets(certificate)))
    return bag(CERT_BAG, value, attributes)


def bag(kind: str, value: bytes, attributes: list[bytes]) -> bytes:
    tail = [set_of(*attributes)] if attributes else []
    return sequence(identifier(kind), element(0xA0, value), *tail)


def attribute(kind: str, value: bytes) -> bytes:
    return sequence(identifier(kind), set_of(value))


# --- RC2 in CBC mode (RFC 2268): old PKCS#12 files encrypt their certificates with it --------------------------------

_PI = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2179a59f587b34f1361456d8d09817d32"
    "bd8f40eb86b77b0bf09521225c6b4e8254d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb626"
    "6fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed708e8eade8052eef784aa72ac354d6a2a"
    "961ad2715a1549744b9fd05e0418a4ecc2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a90d38341bab33ffb0bb480c5fb9b1cd2e"
    "c5f3db47e5a59c770aa62068fe7fc1ad"
)


def decrypt_cbc(key: bytes, iv: bytes, data: bytes) -> bytes:
    schedule = _expanded(key)
    out = bytearray()
    before = iv
    for at in range(0, len(data), 8):
        block = data[at : at + 8]
        out += bytes(a ^ b for a, b in zip(_decrypted(schedule, block), before, strict=True))
        before = block
    return bytes(out)


def _expanded(key: bytes) -> list[int]:
    """Expand the key to 64 words of 16 bits; the effective length is the length of the key."""
    table = bytearray(key.ljust(128, b"\0"))
    size = len(key)
    for at in range(size, 128):
        table[at] = _PI[(table[at - 1] + table[at - size]) & 255]
    table[128 - size] = _PI[table[128 - size]]
    for at in range(127 - size, -1, -1):
        table[at] = _PI[table[at + 1] ^ table[at + size]]
    return [table[2 * word] | table[2 * word + 1] << 8 for word in range(64)]


_SHIFTS = (1, 2, 3, 5)


def _decrypted(schedule: list[int], block: bytes) -> bytes:
    words = [int.from_bytes(block[at : at + 2], "little") for at in range(0, 8, 2)]
    step = 63
    for round_ in range(15, -1, -1):
        for at in (3, 2, 1, 0):
            shift = _SHIFTS[at]
            value = words[at] >> shift | words[at] << (16 - shift)
            a, b, c = words[at - 1], words[at - 2], words[at - 3]
            words[at] = (value - schedule[step] - (a & b) - (~a & c)) & 0xFFFF
            step -= 1
        if round_ in {5, 11}:
            for at in (3, 2, 1, 0):
                words[at] = (words[at] - schedule[words[at - 1] & 63]) & 0xFFFF
    return b"".join(word.to_bytes(2, "little") for word in words)
