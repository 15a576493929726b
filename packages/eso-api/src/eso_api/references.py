"""References between objects: Secrets, service accounts, stores, generators, and label selectors.

Values only. The resolver decides which references may be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, ClassVar, TypeVar

from eso_api.shapes import (
    ApiVersion,
    DataKey,
    Fragment,
    KindName,
    NamespaceName,
    ObjectName,
    kind_needs_api_version,
    one_of,
    shaped,
)

T = TypeVar("T")

CORE_GROUP = "external-secrets.io"
GENERATORS_GROUP = "generators.external-secrets.io"
GENERATORS_API_VERSION = f"{GENERATORS_GROUP}/v1alpha1"

# The kinds that a reference may name without an apiVersion.
STORE_KINDS = ("SecretStore", "ClusterSecretStore", "Provider", "ClusterProvider")
GENERATOR_KINDS = (
    "ACRAccessToken",
    "BeyondtrustWorkloadCredentialsDynamicSecret",
    "ClusterGenerator",
    "CloudsmithAccessToken",
    "ECRAuthorizationToken",
    "Fake",
    "GCRAccessToken",
    "GithubAccessToken",
    "GitlabDeployToken",
    "QuayAccessToken",
    "Password",
    "SSHKey",
    "STSSessionToken",
    "UUID",
    "VaultDynamicSecret",
    "Webhook",
    "Grafana",
    "MFA",
)


class SecretKeySelector(Fragment, frozen=True, kw_only=True):
    """One key of a Secret."""

    name: ObjectName = ""
    """Name of the Secret."""
    namespace: NamespaceName = ""
    """Namespace of the Secret. Only cluster-scoped objects may name another one than their user's."""
    key: DataKey = ""
    """Key inside the Secret."""


class RequiredSecretKeySelector(Fragment, frozen=True, kw_only=True):
    """One key of a Secret or ConfigMap, all named."""

    name: ObjectName
    """Name of the object."""
    key: DataKey
    """Key inside the object."""
    namespace: NamespaceName = ""
    """Namespace of the object. Only cluster-scoped objects may name another one than their user's."""


class SecretSelector(Fragment, frozen=True, kw_only=True):
    """A whole Secret."""

    name: ObjectName
    """Name of the Secret."""
    namespace: NamespaceName = ""
    """Namespace of the Secret. Only cluster-scoped objects may name another one than their user's."""


class ServiceAccountSelector(Fragment, frozen=True, kw_only=True):
    """A service account, and the audiences of its tokens."""

    name: ObjectName
    """Name of the service account."""
    namespace: NamespaceName = ""
    """Namespace of the service account. Only cluster-scoped objects may name another one than their user's."""
    audiences: list[str] = []
    """Audiences of the token, added to those the provider needs."""


class CaProvider(Fragment, frozen=True, kw_only=True):
    """A CA bundle kept in a Secret or ConfigMap."""

    type: Annotated[str, one_of("Secret", "ConfigMap")]
    """Kind of the object."""
    name: ObjectName
    """Name of the object."""
    key: DataKey = ""
    """Key that holds the bundle in PEM."""
    namespace: NamespaceName = ""
    """Namespace of the object; needed in a ClusterSecretStore, forbidden elsewhere."""


class ObjectKeySelector(Fragment, frozen=True, kw_only=True):
    """One key of a Secret or ConfigMap, which the reference names by kind."""

    kind: Annotated[str, one_of("Secret", "ConfigMap")]
    """Kind of the object."""
    name: ObjectName
    """Name of the object."""
    key: DataKey
    """Key inside the object."""
    namespace: NamespaceName = ""
    """Namespace of the object; only the own one may be named."""


class StoreRef(Fragment, frozen=True, kw_only=True):
    """The store that values come from."""

    SHAPE: ClassVar = kind_needs_api_version(STORE_KINDS)

    api_version: ApiVersion = ""
    """API version of the store; absent for external-secrets.io."""
    kind: KindName = ""
    """Kind of the store; absent means SecretStore. Without apiVersion, one of SecretStore, ClusterSecretStore,
    Provider and ClusterProvider."""
    name: ObjectName = ""
    """Name of the store."""


class GeneratorRef(Fragment, frozen=True, kw_only=True):
    """The generator that makes values."""

    SHAPE: ClassVar = kind_needs_api_version(GENERATOR_KINDS, GENERATORS_GROUP)

    kind: KindName
    """Kind of the generator. A kind of another group than generators.external-secrets.io needs an apiVersion."""
    name: ObjectName
    """Name of the generator."""
    api_version: ApiVersion = GENERATORS_API_VERSION
    """API version of the generator; absent means generators.external-secrets.io/v1alpha1."""


class SelectorError(ValueError):
    """A label selector that Kubernetes would refuse."""


class LabelRequirement(Fragment, frozen=True, kw_only=True):
    """One condition on one label."""

    key: str
    """Key of the label."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[list[str], shaped(x_kubernetes_list_type="atomic")] = []
    """Values for In and NotIn; empty otherwise."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self._values_required()
            case "NotIn":
                # An absent label differs from every value.
                return labels.get(self.key) not in self._values_required()
            case "Exists":
                return self._no_values() and self.key in labels
            case "DoesNotExist":
                return self._no_values() and self.key not in labels
            case _:
                raise SelectorError(
                    f'"{self.operator}" is not an operator of a label selector; use In, NotIn, Exists or DoesNotExist'
                )

    def query(self) -> str:
        """Return the condition in the format of the API's labelSelector parameter."""
        self.matches({})
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"
            case "Exists":
                return self.key
            case _:
                return f"!{self.key}"

    def _values_required(self) -> list[str]:
        if not self.values:
            raise SelectorError(f'operator {self.operator} of label "{self.key}" needs values')
        return self.values

    def _no_values(self) -> bool:
        if self.values:
            raise SelectorError(f'operator {self.operator} of label "{self.key}" takes no values')
        return True


class LabelSelector(Fragment, frozen=True, kw_only=True):
    """Objects by label. All conditions must hold; the empty selector matches everything."""

    SHAPE: ClassVar = {"x-kubernetes-map-type": "atomic"}

    match_labels: dict[str, str] = {}
    """Labels with exactly these values."""
    match_expressions: Annotated[list[LabelRequirement], shaped(x_kubernetes_list_type="atomic")] = []
    """Further conditions."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        # Without short-circuiting: an invalid requirement must be reported whatever the labels are.
        verdicts = [requirement.matches(labels) for requirement in self.match_expressions]
        return all(verdicts) and all(labels.get(key) == value for key, value in self.match_labels.items())

    def check(self) -> None:
        """Raise SelectorError if the selector is broken, even where there is nothing to select."""
        self.matches({})

    def among(self, found: Iterable[T], labels_of: Callable[[T], Mapping[str, str]]) -> list[T]:
        """Return the objects that match, after `check`."""
        self.check()
        return [each for each in found if self.matches(labels_of(each))]

    def query(self) -> str:
        """Return the selector in the format of the API's labelSelector parameter."""
        equal = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        return ",".join(equal + [requirement.query() for requirement in self.match_expressions])
