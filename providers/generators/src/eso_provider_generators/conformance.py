"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`."""

from __future__ import annotations

from typing import Final

FIXTURE: Final = {
    "kinds": [
        {"kind": "Password", "spec": {"length": 16}, "invalid": [{"length": 1, "digits": 2}]},
        {"kind": "UUID"},
        {"kind": "SSHKey", "spec": {"keyType": "ed25519"}, "invalid": [{"keySize": 100}]},
        {
            "kind": "MFA",
            "spec": {"secret": {"name": "seed", "key": "totp"}},
            "credentials": {"/secret": "GEZDGNBVGY3TQOJQ"},
            "invalid": [{"secret": {"name": "seed", "key": "totp"}, "length": 1000}],
        },
        {"kind": "Fake", "spec": {"data": {"greeting": "hello"}}},
    ]
}
