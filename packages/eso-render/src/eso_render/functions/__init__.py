"""Every function of a template: the builtins and Sprig of gotmpl, and the External Secrets Operator's own."""

from __future__ import annotations

from collections.abc import Callable

from eso_render.functions import jwk, pem, pkcs12, rsa, yaml
from gotmpl.builtins import FUNCTIONS as BUILTINS
from gotmpl.signatures import Func
from gotmpl.sprig import FUNCTIONS as SPRIG
from gotmpl.sprig.certificates import with_clock as certificates
from gotmpl.sprig.dates import with_clock as dates

OWN = {**pkcs12.FUNCTIONS, **pem.FUNCTIONS, **jwk.FUNCTIONS, **yaml.FUNCTIONS, **rsa.FUNCTIONS}
"""What the operator adds to Sprig."""


def functions(clock: Callable[[], int]) -> dict[str, Func]:
    """The whole table; `clock` gives nanoseconds since 1970."""
    return {**BUILTINS, **SPRIG, **dates(clock), **certificates(clock), **OWN}
