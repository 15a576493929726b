"""Secret values: bytes that cannot escape by accident.

Everything between a provider and a target carries `SecretBytes`. It does not format, pickle, copy, encode or iterate;
`reveal()` is the only way out, so that a review can find every place where a value leaves. `repr` shows `<secret>`, so
dataclasses, tracebacks and log lines that hold a secret stay safe. `str` and `format` raise a TypeError: the text
`<secret>` in an HTTP header or a URL would be harder to find.
"""

from __future__ import annotations

import hmac
from typing import Any, NoReturn, final

_HIDDEN = "<secret>"
_NO_TEXT = (
    "a secret does not become text by itself: call .reveal() where the value must leave, or repr() to show <secret>"
)


@final
class SecretBytes:
    """One secret value. Comparison takes the same time wherever values differ."""

    __slots__ = ("_raw",)
    _raw: bytes

    def __init__(self, raw: bytes | bytearray | memoryview) -> None:
        if not isinstance(raw, (bytes, bytearray, memoryview)):  # `bytes(7)` is seven zeros, and no 7
            raise TypeError(f"a secret is made of bytes, not of {type(raw).__name__}")
        # A copy: a caller that reuses its buffer cannot change the value afterwards.
        object.__setattr__(self, "_raw", bytes(raw))

    def reveal(self) -> bytes:
        """Return the value itself. Never log it, never put it into an error."""
        return self._raw

    def __len__(self) -> int:
        return len(self._raw)

    def __bool__(self) -> bool:
        """Return whether it is not empty."""
        return bool(self._raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SecretBytes):
            return hmac.compare_digest(self._raw, other._raw)
        # Comparing with bytes would leave the other operand unprotected; refuse it instead of answering False.
        if isinstance(other, (bytes, bytearray, memoryview, str)):
            raise TypeError("compare a secret only with another SecretBytes")
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a hash of the value would allow guesses

    def __repr__(self) -> str:
        return _HIDDEN

    def __str__(self) -> NoReturn:
        raise TypeError(_NO_TEXT)

    def __format__(self, _spec: str) -> NoReturn:
        raise TypeError(_NO_TEXT)

    def __add__(self, _other: object) -> NoReturn:
        raise TypeError(_NO_TEXT)

    __radd__ = __add__

    def __setattr__(self, _name: str, _value: object) -> NoReturn:
        raise AttributeError("a secret does not change")

    def __delattr__(self, _name: str) -> NoReturn:
        raise AttributeError("a secret does not change")

    # None tells Python that the operation does not exist: `iter(value)`, `bytes(value)`, `value[0]`, `b"x" in value`.
    __iter__ = None
    __bytes__ = None
    __getitem__ = None
    __contains__ = None

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError("secrets are not serialised; call reveal() where the value must leave")

    def __copy__(self) -> NoReturn:
        raise TypeError("secrets are not copied")

    def __deepcopy__(self, _memo: object) -> NoReturn:
        raise TypeError("secrets are not copied; this also stops dataclasses.asdict")

    def __getstate__(self) -> NoReturn:
        raise TypeError("secrets are not serialised; call reveal() where the value must leave")
