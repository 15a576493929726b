"""Let a library that makes TLS contexts when it is imported read the system's authorities later.

aiohttp makes two contexts when it is imported, each with all authorities of the system: 8 MB and 60 ms of each process.
Our connections have contexts of their own, so most processes never use them. Inside `late_authorities`, a new context
only notes that it needs the authorities. It reads them for its first connection, so it trusts the same as before.

    with late_authorities():
        import aiohttp
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _LateContext(ssl.SSLContext):
    """A context that reads the authorities before its first connection."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return _complete(self).wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return _complete(self).wrap_socket(*args, **options)


@contextmanager
def late_authorities() -> Iterator[None]:
    """Let the contexts that are made inside the block read the system's authorities when they are first used."""
    ssl.SSLContext.set_default_verify_paths = _defer  # type: ignore[assignment,method-assign]  # shadows it
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths


def _defer(context: ssl.SSLContext) -> None:
    if type(context) is ssl.SSLContext:
        context.__class__ = _LateContext
    else:  # a class of its own may rely on the authorities
        super(ssl.SSLContext, context).set_default_verify_paths()


def _complete(context: ssl.SSLContext) -> ssl.SSLContext:
    context.__class__ = ssl.SSLContext
    context.set_default_verify_paths()
    return context
