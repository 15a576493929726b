"""All template functions: the builtins and Sprig of gotmpl, and those of the External Secrets Operator."""

from __future__ import annotations

from collections.abc import Callable

from gotmpl.builtins import FUNCTIONS as BUILTINS
from gotmpl.functions import LazyFunctions, family
from gotmpl.sprig import families

NAMES = {
    "pkcs12": (
        "fullPemToPkcs12 fullPemToPkcs12Pass pemToPkcs12 pemToPkcs12Pass pemTruststoreToPKCS12 "
        "pemTruststoreToPKCS12Pass pkcs12cert pkcs12certPass pkcs12key pkcs12keyPass"
    ),
    "pem": "certSANs filterCertChain filterPEM rsaDecrypt",
    "jwk": "jwkPrivateKeyPem jwkPublicKeyPem",
    "yaml": "fromYaml toYaml",
}
"""The functions that the operator adds to Sprig."""


def functions(clock: Callable[[], int]) -> LazyFunctions:
    """Return all functions; `clock` returns nanoseconds since 1970."""
    own = [(names, family(f"eso_render.functions.{module}")) for module, names in NAMES.items()]
    return LazyFunctions([(" ".join(BUILTINS), lambda: BUILTINS), *families(clock), *own])
