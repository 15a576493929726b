"""rsaDecrypt."""

from __future__ import annotations

from gotmpl import keys, pem
from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import STRING, Functions
from gotmpl.keys import KeyFormatError
from gotmpl.values import to_bytes, to_text

FUNCTIONS = Functions()


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
