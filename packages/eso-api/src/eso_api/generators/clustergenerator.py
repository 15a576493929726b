"""ClusterGenerator: any of the generators, for all namespaces."""

from __future__ import annotations

from typing import Annotated, ClassVar

from eso_api.crd import GENERATOR_CATEGORIES, CustomKind
from eso_api.generators.aws import ECRAuthorizationTokenSpec, STSSessionTokenSpec
from eso_api.generators.azure import ACRAccessTokenSpec
from eso_api.generators.gcp import GCRAccessTokenSpec
from eso_api.generators.github import GithubAccessTokenSpec
from eso_api.generators.gitlab import GitlabDeployTokenSpec
from eso_api.generators.local import FakeSpec, MFASpec, PasswordSpec, SSHKeySpec, UUIDSpec
from eso_api.generators.tokens import (
    BeyondtrustWorkloadCredentialsDynamicSecretSpec,
    CloudsmithAccessTokenSpec,
    GrafanaSpec,
    QuayAccessTokenSpec,
)
from eso_api.generators.vault import VaultDynamicSecretSpec
from eso_api.generators.webhook import WebhookSpec
from eso_api.references import GENERATOR_KINDS, GENERATORS_GROUP
from eso_api.shapes import Fragment, Rule, exactly_one, one_of
from kubebase.meta import Object

EMBEDDABLE_KINDS = tuple(kind for kind in GENERATOR_KINDS if kind != "ClusterGenerator")

# Field of `spec.generator` for each kind.
SPEC_FIELDS = {
    "ACRAccessToken": "acrAccessTokenSpec",
    "BeyondtrustWorkloadCredentialsDynamicSecret": "beyondtrustWorkloadCredentialsDynamicSecretSpec",
    "CloudsmithAccessToken": "cloudsmithAccessTokenSpec",
    "ECRAuthorizationToken": "ecrAuthorizationTokenSpec",
    "Fake": "fakeSpec",
    "GCRAccessToken": "gcrAccessTokenSpec",
    "GithubAccessToken": "githubAccessTokenSpec",
    "GitlabDeployToken": "gitlabDeployTokenSpec",
    "Grafana": "grafanaSpec",
    "MFA": "mfaSpec",
    "Password": "passwordSpec",
    "QuayAccessToken": "quayAccessTokenSpec",
    "SSHKey": "sshKeySpec",
    "STSSessionToken": "stsSessionTokenSpec",
    "UUID": "uuidSpec",
    "VaultDynamicSecret": "vaultDynamicSecretSpec",
    "Webhook": "webhookSpec",
}


class EmbeddedGenerator(Fragment, frozen=True, kw_only=True):
    """The spec of one generator."""

    SHAPE: ClassVar = exactly_one()

    acr_access_token_spec: ACRAccessTokenSpec | None = None
    beyondtrust_workload_credentials_dynamic_secret_spec: BeyondtrustWorkloadCredentialsDynamicSecretSpec | None = None
    cloudsmith_access_token_spec: CloudsmithAccessTokenSpec | None = None
    ecr_authorization_token_spec: ECRAuthorizationTokenSpec | None = None
    fake_spec: FakeSpec | None = None
    gcr_access_token_spec: GCRAccessTokenSpec | None = None
    github_access_token_spec: GithubAccessTokenSpec | None = None
    gitlab_deploy_token_spec: GitlabDeployTokenSpec | None = None
    grafana_spec: GrafanaSpec | None = None
    mfa_spec: MFASpec | None = None
    password_spec: PasswordSpec | None = None
    quay_access_token_spec: QuayAccessTokenSpec | None = None
    ssh_key_spec: SSHKeySpec | None = None
    sts_session_token_spec: STSSessionTokenSpec | None = None
    uuid_spec: UUIDSpec | None = None
    vault_dynamic_secret_spec: VaultDynamicSecretSpec | None = None
    webhook_spec: WebhookSpec | None = None


class ClusterGeneratorSpec(Fragment, frozen=True, kw_only=True):
    """Which generator, and its spec."""

    RULES: ClassVar = (
        Rule(
            " || ".join(
                f"(self.kind == '{kind}' && has(self.generator.{field}))" for kind, field in SPEC_FIELDS.items()
            ),
            "generator must hold the spec of the generator named by kind, for example passwordSpec for Password",
        ),
    )

    kind: Annotated[str, one_of(*EMBEDDABLE_KINDS)]
    """Kind of the generator."""
    generator: EmbeddedGenerator
    """Its spec."""


class ClusterGenerator(Object, kw_only=True):
    """Any of the generators, for all namespaces."""

    spec: ClusterGeneratorSpec


CLUSTER_GENERATOR = CustomKind(
    ClusterGenerator,
    group=GENERATORS_GROUP,
    plural="clustergenerators",
    versions=("v1alpha1",),
    namespaced=False,
    categories=GENERATOR_CATEGORIES,
)
