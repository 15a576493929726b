"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

Only what needs no endpoint: a run that reads, writes or generates names its own endpoint with `--fixture`.
"""

from __future__ import annotations

from typing import Any, Final

from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP

_URL: Final = "https://webhook.example.com"

STORE: Final[dict[str, Any]] = {
    "group": STORE_CONFIG_GROUP,
    "ownership": False,
    "invalid": [{}, {"url": "ftp://example.com"}, {"url": _URL, "result": {"jsonPath": "data"}}],
}
GENERATOR: Final[dict[str, Any]] = {
    "group": GENERATOR_CONFIG_GROUP,
    "kind": "Webhook",
    "invalid": [{}, {"url": _URL, "result": {"jsonPath": "$..a"}}],
}
_LOGIN: Final = {"name": "login", "namespace": "conformance"}


def fixture_at(url: str) -> dict[str, Any]:
    """Expect values below `secrets/` of an endpoint, a generated password at `new`, and an NTLM login."""
    ntlm = {"usernameSecret": _LOGIN | {"key": "user"}, "passwordSecret": _LOGIN | {"key": "password"}}
    store = STORE | {
        "spec": {
            "url": url + "secrets/{{ .remoteRef.key }}{{ .remoteRef.remoteKey }}",
            "result": {"jsonPath": "{{ if .remoteRef.property }}$.{{ .remoteRef.property }}{{ end }}"},
            "auth": {"ntlm": ntlm},
        },
        "credentials": {"/auth/ntlm/usernameSecret": "anna", "/auth/ntlm/passwordSecret": "open sesame"},
        "known": [
            {"key": "greeting", "value": "hello"},
            {"key": "dir/greeting", "value": "hello again"},
            {"key": "login", "value": "anna", "property": "user"},
        ],
        "maps": [{"key": "login", "value": {"user": "anna", "realm": "test"}}],
    }
    generator = GENERATOR | {"spec": {"url": url + "new", "result": {}}}
    return {"kinds": [store | {"kind": "Webhook"}, store | {"kind": "ClusterWebhook"}, generator]}


FIXTURE: Final = {"kinds": [STORE | {"kind": "Webhook"}, STORE | {"kind": "ClusterWebhook"}, GENERATOR]}
