"""`spec.provider.aws`: Secrets Manager, Parameter Store and Certificate Manager.

The AWS generators and the AWS provider's own kinds share the parts about credentials.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.marks import annotation, audiences
from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment, one_of, shaped

RESERVED_TAGS = ("esoNamespace", "esoStoreName", "esoStoreKind")


class AwsSecretRef(Fragment, frozen=True, kw_only=True):
    """Long-lived or temporary keys."""

    access_key_id_secret_ref: SecretKeySelector | None = msgspec.field(default=None, name="accessKeyIDSecretRef")
    """Access key id."""
    secret_access_key_secret_ref: SecretKeySelector | None = None
    """Secret access key."""
    session_token_secret_ref: SecretKeySelector | None = None
    """Session token of temporary keys."""


class AwsJwt(Fragment, frozen=True, kw_only=True):
    """A service account that may assume a role (IRSA)."""

    service_account_ref: (
        Annotated[
            ServiceAccountSelector,
            audiences(annotation("eks.amazonaws.com/audience", otherwise="sts.amazonaws.com")),
        ]
        | None
    ) = None
    """The service account; its annotation names the role."""


class AwsAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; absent means those of the provider process."""

    jwt: AwsJwt | None = None
    """A service account that may assume a role."""
    secret_ref: AwsSecretRef | None = None
    """Keys kept in Secrets."""


class SessionTag(Fragment, frozen=True, kw_only=True):
    """One tag of an assumed role's session."""

    key: str
    """Key of the tag."""
    value: str
    """Value of the tag."""


RecoveryWindow = Annotated[
    int,
    shaped(
        format="int64",
        x_kubernetes_validations=[
            {"rule": "self == 0 || (self >= 7 && self <= 30)", "message": "must be 0 or between 7 and 30"}
        ],
    ),
]


class SecretsManagerDeletion(Fragment, frozen=True, kw_only=True):
    """How Secrets Manager deletes."""

    force_delete_without_recovery: bool = False
    """Delete at once."""
    recovery_window_in_days: RecoveryWindow = 0
    """Days until the deletion is final: 7 to 30, or 0 for the default of AWS."""


CustomSessionTags = Annotated[
    dict[str, str],
    shaped(
        **{
            "x-kubernetes-validations": [
                {
                    "rule": " && ".join(f"!('{tag}' in self)" for tag in RESERVED_TAGS),
                    "message": f"the tags {', '.join(RESERVED_TAGS)} are set by the operator",
                }
            ]
        }
    ),
]


class AwsConnection(Fragment, frozen=True, kw_only=True):
    """The connection to one region of one account, for any service."""

    region: str
    """Region of the backend."""
    auth: AwsAuth | None = None
    """Credentials; absent means those of the provider process."""
    role: str = ""
    """Role to assume."""
    additional_roles: list[str] = []
    """Roles to assume one after the other before role."""
    external_id: str = msgspec.field(default="", name="externalID")
    """External id for assuming role."""
    session_tags: list[SessionTag] = []
    """Tags of the session; replaced when sessionTagsPolicy sets its own."""
    session_tags_policy: Annotated[str, one_of("None", "Simple", "Custom")] = "None"
    """Simple tags the session with namespace and store, Custom adds customSessionTags; absent means None."""
    custom_session_tags: CustomSessionTags = {}
    """Tags for sessionTagsPolicy Custom."""
    transitive_tag_keys: list[str] = []
    """Tags that roles assumed later inherit."""
    prefix: str = ""
    """Put before every remote key."""


class AwsProvider(AwsConnection, frozen=True, kw_only=True):
    """AWS Secrets Manager, Parameter Store or Certificate Manager."""

    service: Annotated[str, one_of("SecretsManager", "ParameterStore", "CertificateManager")]
    """Which service."""
    secrets_manager: SecretsManagerDeletion | None = None
    """How Secrets Manager deletes."""
