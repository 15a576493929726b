"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`."""

from __future__ import annotations

from typing import Any, Final

_SPEC: Final = {
    "data": [
        {"key": "greeting", "value": "hello"},
        {"key": "greeting/versioned", "value": "hello again", "version": "v2"},
        {"key": "login", "value": '{"user":"anna","realm":"test"}'},
    ]
}


def _kind(name: str) -> dict[str, Any]:
    return {
        "kind": name,
        "spec": _SPEC,
        "known": [
            {"key": "greeting", "value": "hello"},
            {"key": "greeting/versioned", "value": "hello again", "version": "v2"},
            {"key": "login", "value": "anna", "property": "user"},
        ],
        "maps": [{"key": "login", "value": {"user": "anna", "realm": "test"}}],
        "find": {"name": "^greeting", "keys": ["greeting", "greeting/versioned"]},
        "invalid": [{"data": [{"key": "", "value": "x"}]}],
    }


FIXTURE: Final = {"kinds": [_kind("Fake"), _kind("ClusterFake")]}
