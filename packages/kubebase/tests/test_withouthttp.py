"""Libraries that are imported without the HTTP modules of Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kubebase.withouthttp import without_http

_LIBRARY = """
import sys
{before}
from kubebase.withouthttp import without_http
with without_http():
    import prometheus_client
{after}
"""


def told(*, before: str = "", after: str) -> str:
    code = _LIBRARY.format(before=before, after=after)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_library_loads_without_the_modules_and_they_can_be_imported_later() -> None:
    after = """
before = "http.server" in sys.modules
import http.server, urllib.request
print(before, http.server.BaseHTTPRequestHandler.__module__, urllib.request.build_opener.__module__)
"""

    assert told(after=after).split() == ["False", "http.server", "urllib.request"]


def test_metrics_are_written_as_ever() -> None:
    after = """
registry = prometheus_client.CollectorRegistry()
prometheus_client.Counter("calls", "Calls", registry=registry).inc()
print(prometheus_client.generate_latest(registry).decode())
"""

    assert "calls_total 1.0" in told(after=after)


def test_the_use_of_a_module_that_was_left_out_says_what_to_do() -> None:
    after = """
try:
    prometheus_client.push_to_gateway("localhost:9", "job", prometheus_client.CollectorRegistry())
except RuntimeError as error:
    print(error)
"""

    assert "import http.server, wsgiref.simple_server and urllib.request first" in told(after=after)


def test_modules_that_are_loaded_are_used_as_they_are() -> None:
    before = "import http.server, wsgiref.simple_server, urllib.request"
    after = "print(http.server.BaseHTTPRequestHandler in prometheus_client.MetricsHandler.__mro__)"

    assert told(before=before, after=after).split() == ["True"]


def test_modules_are_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wsgiref.simple_server", raising=False)

    with pytest.raises(ImportError), without_http():
        raise ImportError

    assert "wsgiref.simple_server" not in sys.modules
