"""From what a provider gave to what a template gets: rewrite, convert, check names, decode, refuse null bytes.

Pure, and the order is part of the API: rewriting sees undecoded values, and with any rewrite no key is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eso_api.externalsecret import Find, RemoteRef
from eso_api.rewrite import Rewrite
from eso_api.values import SecretBytes
from eso_operator.sync.errors import ShapeError
from eso_operator.sync.keys import checked, converted
from eso_operator.sync.rewrite import rewritten
from eso_render.decoding import DecodingError, decode
from eso_render.engine import render_key
from eso_render.scopes import RenderText

Values = Mapping[str, SecretBytes]


def shape_value(value: SecretBytes, ref: RemoteRef) -> SecretBytes:
    """One value of `data`."""
    return _without_null_bytes(_decoded(value, ref.decoding_strategy, ""), ref.null_byte_policy, "")


def shape_fetched(
    values: Values, source: RemoteRef | Find, steps: Sequence[Rewrite], render: RenderText = render_key
) -> dict[str, SecretBytes]:
    """The values of one `extract` or `find`."""
    named = rewritten(values, steps, render) if steps else converted(values, source.conversion_strategy)
    decoded = {key: _decoded(value, source.decoding_strategy, key) for key, value in checked(named).items()}
    return {key: _without_null_bytes(decoded[key], source.null_byte_policy, key) for key in sorted(decoded)}


def shape_generated(
    values: Values, steps: Sequence[Rewrite], render: RenderText = render_key
) -> dict[str, SecretBytes]:
    """The values of a generator: renamed, but neither converted nor decoded."""
    return checked(rewritten(values, steps, render))


def _decoded(value: SecretBytes, strategy: str, key: str) -> SecretBytes:
    try:
        return SecretBytes(decode(strategy, value.reveal()))
    except DecodingError as problem:
        raise ShapeError(f'key "{key}": {problem}' if key else str(problem)) from None


def _without_null_bytes(value: SecretBytes, policy: str, key: str) -> SecretBytes:
    if policy == "Fail" and b"\0" in value.reveal():
        raise ShapeError(f"{f'key {key!r}' if key else 'the value'} contains a null byte, and nullBytePolicy is Fail")
    return value
