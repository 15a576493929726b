"""Import a library without the HTTP servers and clients of Python that it would load and we do not use.

`prometheus_client` has a server and a client that pushes, so it imports `http.server`, `wsgiref` and `urllib.request`,
with html and email: 2 MB of each provider. Our metrics are served by other means.

    with without_http():
        import prometheus_client

A process that does use this server or client imports those three modules first: modules that are already loaded are
used as they are. Otherwise their use raises an error that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, NoReturn

_HTTP: Final = {
    "http.server": ("BaseHTTPRequestHandler",),
    "socketserver": ("ThreadingMixIn",),
    "urllib.request": (
        "BaseHandler",
        "HTTPHandler",
        "HTTPRedirectHandler",
        "HTTPSHandler",
        "Request",
        "build_opener",
    ),
    "wsgiref.simple_server": ("WSGIRequestHandler", "WSGIServer", "make_server"),
}


class _NotLoaded:
    """Stands in for a class or function of a library that is not loaded."""

    def __new__(cls, *_arguments: object, **_options: object) -> NoReturn:
        raise RuntimeError(
            "this library was imported without HTTP, see kubebase.withouthttp; to use its server or client, import"
            " http.server, wsgiref.simple_server and urllib.request first"
        )


@contextmanager
def without_http() -> Iterator[None]:
    """Let stand-ins take the place of these modules inside the block, unless they are loaded."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _HTTP if name not in modules]
    for name in hidden:
        module = modules[name] = ModuleType(name)
        for each in _HTTP[name]:
            setattr(module, each, type(each, (_NotLoaded,), {}))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
