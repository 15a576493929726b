"""The kinds of the GitLab provider: the fields of the v1 block and of the v1alpha1 generator, as their own objects."""

import msgspec

from eso_api.generators.gitlab import GITLAB_DEPLOY_TOKEN as V1_GITLAB_DEPLOY_TOKEN
from eso_api.kinds import installed_kinds
from eso_api.stores.gitlab import GitlabProvider
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP
from eso_provider_gitlab.generator import GitlabDeployTokenGenerator
from eso_provider_gitlab.kinds import KINDS, STORES
from eso_provider_gitlab.provider import PROVIDER
from eso_provider_gitlab.store import VariableStore
from eso_sdk.provider import served_kind
from eso_wire.values import Operation


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())
    assert set(KINDS) == set(PROVIDER.kinds_for_crds)
    assert [(kind.name, kind.group, kind.namespaced) for kind in KINDS] == [
        ("GitLab", STORE_CONFIG_GROUP, True),
        ("ClusterGitLab", STORE_CONFIG_GROUP, False),
        ("GitlabDeployToken", GENERATOR_CONFIG_GROUP, True),
    ]


def test_the_spec_is_that_of_the_v1_block() -> None:
    v1 = {"projectID": "42", "auth": {"SecretRef": {"accessToken": {"name": "gitlab", "key": "token"}}}}

    for spec in (msgspec.convert({"spec": v1}, kind.type).spec for kind in STORES):
        assert isinstance(spec, GitlabProvider)
        assert (spec.project_id, spec.auth.secret_ref.access_token.name) == ("42", "gitlab")


def test_the_store_reads_and_never_writes() -> None:
    served = served_kind(VariableStore)

    assert served.v1_key == "gitlab"
    assert served.operations == {
        Operation.GET,
        Operation.GET_MAP,
        Operation.FIND_BY_NAME,
        Operation.FIND_BY_TAGS,
        Operation.NOT_FOUND_SEMANTICS,
    }


def test_the_generator_serves_both_api_versions_and_cleans_up() -> None:
    served = served_kind(GitlabDeployTokenGenerator)

    assert served.bridged == (V1_GITLAB_DEPLOY_TOKEN,)
    assert served.operations == {Operation.GENERATE, Operation.CLEANUP}
