"""Passwords and keys: bcrypt, htpasswd, derivePassword, AES, private keys.

Large libraries are imported on use; expensive functions declare their cost, so that a template cannot call them without
limit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Any

from gotmpl import keys
from gotmpl.errors import FuncError, bounded
from gotmpl.functions import INT, STRING, UINT32, Functions, GoType
from gotmpl.sprig.encoding import b64_error
from gotmpl.values import to_bytes, to_text

FUNCTIONS = Functions()
ALGORITHM = GoType("sprig.HashAlgorithm", (), "string")
"""Only a literal fits: a template value is a string, and Go does not convert it."""


@FUNCTIONS.add("bcrypt", params=(STRING,), cost=4_000)
def bcrypt(text: str) -> str:
    raw = to_bytes(text)
    if len(raw) > 72:
        return "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes"
    from bcrypt import gensalt, hashpw

    return hashpw(raw, gensalt(10, b"2a")).decode()


@FUNCTIONS.add("htpasswd", params=(STRING, STRING, ALGORITHM), cost=4_000)
def htpasswd(user: str, password: str, algorithm: str) -> str:
    if ":" in user:
        return f"invalid username: {user}"
    if algorithm == "sha":
        digest = hashlib.sha1(to_bytes(password)).digest()  # noqa: S324 the format is what the caller asked for
        return f"{user}:{{SHA}}{base64.b64encode(digest).decode()}"
    return f"{user}:{bcrypt(password)}"


@FUNCTIONS.add("randBytes", params=(INT,))
def rand_bytes(count: int) -> str:
    if count < 0:
        raise FuncError("runtime error: makeslice: len out of range")
    bounded(count)
    return base64.b64encode(secrets.token_bytes(count)).decode()


_SEED = b"com.lyndir.masterpassword"
_VOWELS, _CONSONANTS, _DIGITS = "aeiou", "bcdfghjklmnpqrstvwxyz", "0123456789"
_LETTERS = _VOWELS.upper() + _VOWELS + _CONSONANTS.upper() + _CONSONANTS
_CLASSES = {
    "V": _VOWELS.upper(),
    "C": _CONSONANTS.upper(),
    "v": _VOWELS,
    "c": _CONSONANTS,
    "A": (_VOWELS + _CONSONANTS).upper(),
    "a": _LETTERS,
    "n": _DIGITS,
    "o": "@&%?,=[]_:-+*$#!'^~;()/.",
    "x": _LETTERS + _DIGITS + "!@#$%^&*()",
}
_LONG = (
    "CvcvnoCvcvCvcv CvcvCvcvnoCvcv CvcvCvcvCvcvno CvccnoCvcvCvcv CvccCvcvnoCvcv CvccCvcvCvcvno CvcvnoCvccCvcv "
    "CvcvCvccnoCvcv CvcvCvccCvcvno CvcvnoCvcvCvcc CvcvCvcvnoCvcc CvcvCvcvCvccno CvccnoCvccCvcv CvccCvccnoCvcv "
    "CvccCvccCvcvno CvcvnoCvccCvcc CvcvCvccnoCvcc CvcvCvccCvccno CvccnoCvcvCvcc CvccCvcvnoCvcc CvccCvcvCvccno"
)
_SHAPES = {
    "maximum": ("anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"),
    "long": tuple(_LONG.split()),
    "medium": ("CvcnoCvc", "CvcCvcno"),
    "short": ("Cvcn",),
    "basic": ("aaanaaan", "aannaaan", "aaannaaa"),
    "pin": ("nnnn",),
}
"""The published tables of the Master Password algorithm, version 1 of its password types."""


@FUNCTIONS.add("derivePassword", params=(UINT32, STRING, STRING, STRING, STRING), cost=8_000)
def derive_password(counter: int, kind: str, password: str, user: str, site: str) -> str:
    shapes = _SHAPES.get(kind)
    if shapes is None:
        return f"cannot find password template {kind}"
    name, site_bytes = to_bytes(user), to_bytes(site)
    salt = _SEED + len(name).to_bytes(4, "big") + name
    key = hashlib.scrypt(to_bytes(password), salt=salt, n=32768, r=8, p=2, maxmem=64 << 20, dklen=64)
    message = _SEED + len(site_bytes).to_bytes(4, "big") + site_bytes + (counter % 2**32).to_bytes(4, "big")
    seed = hmac.new(key, message, hashlib.sha256).digest()
    shape = shapes[seed[0] % len(shapes)]
    return "".join(_CLASSES[slot][byte % len(_CLASSES[slot])] for slot, byte in zip(shape, seed[1:], strict=False))


def _aes(password: str, iv: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = to_bytes(password)[:32].ljust(32, b"\0")
    return Cipher(algorithms.AES(key), modes.CBC(iv))


@FUNCTIONS.add("encryptAES", params=(STRING, STRING))
def encrypt_aes(password: str, text: str) -> str:
    if not text:
        return ""
    raw = to_bytes(text)
    padding = 16 - len(raw) % 16
    iv = secrets.token_bytes(16)
    encryptor = _aes(password, iv).encryptor()
    return base64.b64encode(iv + encryptor.update(raw + bytes([padding]) * padding) + encryptor.finalize()).decode()


@FUNCTIONS.add("decryptAES", params=(STRING, STRING))
def decrypt_aes(password: str, text: str) -> str:
    if not text:
        return ""
    problem = b64_error(text)
    if problem:
        raise FuncError(problem)
    raw = base64.b64decode(text)
    if len(raw) < 16:
        raise FuncError(f"runtime error: slice bounds out of range [:16] with capacity {len(text) // 4 * 3}")
    body = raw[16:]
    if len(body) % 16:
        raise FuncError("crypto/cipher: input not full blocks")
    if not body:
        raise FuncError("runtime error: index out of range [-1]")
    decryptor = _aes(password, raw[:16]).decryptor()
    plain = decryptor.update(body) + decryptor.finalize()
    if plain[-1] > len(plain):
        raise FuncError(f"runtime error: slice bounds out of range [:{len(plain) - plain[-1]}]")
    return to_text(plain[: len(plain) - plain[-1]])


def _rsa(bits: int) -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(65537, bits)


def _dsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric import dsa

    return dsa.generate_private_key(2048)


def _ecdsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _ed25519() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519.Ed25519PrivateKey.generate()


_GENERATORS: dict[str, Callable[[], Any]] = {
    "": lambda: _rsa(4096),
    "rsa": lambda: _rsa(4096),
    "dsa": _dsa,
    "ecdsa": _ecdsa,
    "ed25519": _ed25519,
}


@FUNCTIONS.add("genPrivateKey", params=(STRING,), cost=30_000)
def gen_private_key(kind: str) -> str:
    make = _GENERATORS.get(kind)
    return f"Unknown type {kind}" if make is None else keys.to_pem(make())


def new_rsa_key() -> Any:
    return _rsa(2048)
