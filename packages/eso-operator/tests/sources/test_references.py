"""The sources that `kubectl get` shows, by the fields that the spec has."""

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecretSpec, SourceNames
from eso_operator.sources.entries import source_names


def generated(kind: str, name: str) -> dict[str, Any]:
    return {"sourceRef": {"generatorRef": {"kind": kind, "name": name}}}


def stored(name: str, **ref: str) -> dict[str, Any]:
    return {"extract": {"key": "a"}, "sourceRef": {"storeRef": {"name": name, **ref}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"secretStoreRef": {"name": "a", "kind": "ClusterSecretStore"}}, None, id="the spec has both"),
        pytest.param(
            {"secretStoreRef": {"name": "a"}}, SourceNames(kind="SecretStore"), id="the kind is the default one"
        ),
        pytest.param(
            {"dataFrom": [generated("Password", "db")]}, SourceNames(kind="Password", name="db"), id="a generator only"
        ),
        pytest.param(
            {"dataFrom": [stored("a"), stored("b", kind="ClusterSecretStore"), stored("a")]},
            SourceNames(kind="SecretStore,ClusterSecretStore", name="a,b"),
            id="sources of entries, each once",
        ),
        pytest.param(
            {"dataFrom": [generated("Password", name) for name in "abcde"]},
            SourceNames(kind="Password", name="a,b,c + 2 more..."),
            id="many sources are abbreviated",
        ),
        pytest.param(
            {"dataFrom": [stored("a", apiVersion="secretstore.external-secrets.io/v2alpha1", kind="SecretStore")]},
            SourceNames(kind="SecretStore", name="a"),
            id="a store of the second generation",
        ),
        pytest.param({}, None, id="no source at all"),
    ],
)
def test_the_status_names_the_sources_that_the_spec_leaves_out(
    spec: dict[str, Any], expected: SourceNames | None
) -> None:
    assert source_names(msgspec.convert(spec, ExternalSecretSpec)) == expected
