"""The kinds of the GitHub provider, and the addresses and messages of its parts."""

import msgspec
import pytest

from eso_api.generators.github import GITHUB_ACCESS_TOKEN as V1_GITHUB_ACCESS_TOKEN
from eso_api.kinds import installed_kinds
from eso_api.stores.github import GithubProvider
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP
from eso_provider_github.app import Issued, generator_base, store_base
from eso_provider_github.generator import GithubAccessTokenGenerator
from eso_provider_github.kinds import KINDS, STORES
from eso_provider_github.provider import PROVIDER
from eso_provider_github.store import ActionsStore
from eso_sdk.provider import served_kind
from eso_wire.values import Operation


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())
    assert set(KINDS) == set(PROVIDER.kinds_for_crds)
    assert [(kind.name, kind.group, kind.namespaced) for kind in KINDS] == [
        ("GitHub", STORE_CONFIG_GROUP, True),
        ("ClusterGitHub", STORE_CONFIG_GROUP, False),
        ("GithubAccessToken", GENERATOR_CONFIG_GROUP, True),
    ]


def test_the_spec_is_that_of_the_v1_block() -> None:
    v1 = {
        "appID": 1,
        "installationID": 2,
        "organization": "acme",
        "auth": {"privateKey": {"name": "github", "key": "key"}},
    }

    for spec in (msgspec.convert({"spec": v1}, kind.type).spec for kind in STORES):
        assert isinstance(spec, GithubProvider)
        assert (spec.app_id, spec.installation_id, spec.auth.private_key.name) == (1, 2, "github")


def test_the_store_writes_and_never_reads() -> None:
    served = served_kind(ActionsStore)

    assert served.v1_key == "github"
    assert served.operations == {
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.DELETE,
        Operation.EXISTS,
    }


def test_the_generator_serves_both_api_versions_and_cleans_up() -> None:
    served = served_kind(GithubAccessTokenGenerator)

    assert served.bridged == (V1_GITHUB_ACCESS_TOKEN,)
    assert served.operations == {Operation.GENERATE, Operation.CLEANUP}


@pytest.mark.parametrize(
    ("url", "base"),
    [
        pytest.param("", "https://api.github.com", id="absent"),
        pytest.param("https://github.com/", "https://api.github.com", id="the web site"),
        pytest.param("https://ghe.example.com", "https://ghe.example.com/api/v3", id="an enterprise server"),
        pytest.param("https://ghe.example.com/api/v3/", "https://ghe.example.com/api/v3", id="its API"),
        pytest.param("https://api.acme.ghe.com", "https://api.acme.ghe.com", id="an enterprise cloud"),
    ],
)
def test_the_address_of_a_store_becomes_that_of_the_api(url: str, base: str) -> None:
    assert str(store_base(url)).rstrip("/") == base


def test_the_address_of_a_generator_is_that_of_the_api() -> None:
    assert str(generator_base("")).rstrip("/") == "https://api.github.com"
    assert str(generator_base("https://ghe.example.com/api/v3/")) == "https://ghe.example.com/api/v3"


def test_a_token_is_never_printed() -> None:
    issued = msgspec.json.decode(b'{"token":"CANARY","expires_at":"2027-01-01T00:00:00Z"}', type=Issued)

    assert "CANARY" not in f"{issued!r} {issued}"
