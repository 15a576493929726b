"""PushSecret: write a Secret, or generated values, to stores."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from eso_api.common import Conditions, FailedNamespace, KeyOutcome
from eso_api.crd import CustomKind, age_column, ready_reason, time_column
from eso_api.externalsecret import ChildMetadata
from eso_api.references import CORE_GROUP, STORE_KINDS, GeneratorRef, LabelSelector
from eso_api.shapes import (
    ApiVersion,
    Fragment,
    Interval,
    Json,
    KindName,
    NullableTimestamp,
    ObjectName,
    Rule,
    exactly_one,
    exactly_one_of,
    kind_needs_api_version,
    one_of,
    one_rule,
    shaped,
)
from eso_api.template import RegexpRewrite, Template, TransformRewrite
from kubebase.meta import Object

# Limits for the API server's cost estimate of the rules.
MAX_STORE_REFS = 1000
MAX_DATA_TO = 1000
MAX_REWRITES = 100

_CONVERSION = one_of("None", "ReverseUnicode")


class PushStoreRef(Fragment, frozen=True, kw_only=True):
    """A store to push to, by name or by label."""

    SHAPE: ClassVar = kind_needs_api_version(STORE_KINDS)

    api_version: ApiVersion = ""
    """API version of the store; absent for external-secrets.io."""
    kind: KindName = "SecretStore"
    """Kind of the store; absent means SecretStore. Without apiVersion, one of SecretStore, ClusterSecretStore,
    Provider and ClusterProvider."""
    name: ObjectName = ""
    """Name of the store."""
    label_selector: LabelSelector | None = None
    """Stores by label; wins over name."""

    @property
    def group_kind(self) -> tuple[str, str]:
        """Group and kind of the store. All versions of a group name the same stores."""
        group = self.api_version.rpartition("/")[0] if self.api_version else CORE_GROUP
        return group, self.kind or "SecretStore"

    @property
    def chooses(self) -> bool:
        """Whether it says which stores are meant: one by name, or some by label."""
        return bool(self.name) or self.label_selector is not None


class SecretSource(Fragment, frozen=True, kw_only=True):
    """Secrets of the same namespace."""

    name: ObjectName = ""
    """Name of one Secret; wins over selector."""
    selector: LabelSelector | None = None
    """Secrets by label."""

    @property
    def chooses(self) -> bool:
        """Whether it says which Secrets are meant."""
        return bool(self.name) or self.selector is not None


class PushSelector(Fragment, frozen=True, kw_only=True):
    """The source of the values."""

    SHAPE: ClassVar = exactly_one()

    secret: SecretSource | None = None
    """Push Secrets."""
    generator_ref: GeneratorRef | None = None
    """Push freshly generated values."""


class PushRemoteRef(Fragment, frozen=True, kw_only=True):
    """The destination of a value in the backend."""

    remote_key: str
    """Name of the remote secret."""
    property: str = ""
    """Property to set inside the remote secret; absent writes the whole."""


class PushMatch(Fragment, frozen=True, kw_only=True):
    """One key and its destination."""

    remote_ref: PushRemoteRef
    """Where the value goes."""
    secret_key: str = ""
    """Key of the Secret; absent means the whole Secret."""


class PushData(Fragment, frozen=True, kw_only=True):
    """One key to push."""

    match: PushMatch
    """The key and its destination."""
    metadata: Json = None
    """Settings for the provider, usually a PushSecretMetadata object."""
    conversion_strategy: Annotated[str, _CONVERSION] = "None"
    """How keys of the Secret are converted; absent means None."""


class KeyMatch(Fragment, frozen=True, kw_only=True):
    """Keys to push."""

    regexp: str = ""
    """Expression (RE2) that must match somewhere in the key; absent takes all keys."""


class PushRewrite(Fragment, frozen=True, kw_only=True):
    """One step that turns a key into a remote key."""

    RULES: ClassVar = (exactly_one_of("regexp", "transform"),)

    regexp: RegexpRewrite | None = None
    """Rename by regular expression."""
    transform: TransformRewrite | None = None
    """Rename by template."""


_HAS_STORE = Rule(
    "has(self.storeRef) && (has(self.storeRef.name) || has(self.storeRef.labelSelector))",
    "storeRef must have a name or a labelSelector",
)
_ONE_REMOTE_SECRET = Rule(
    "!has(self.remoteKey) || !has(self.rewrite) || size(self.rewrite) == 0",
    "remoteKey and rewrite exclude each other: with remoteKey all keys go into one remote secret",
)


class PushDataTo(Fragment, frozen=True, kw_only=True):
    """Many keys to push to one store."""

    RULES: ClassVar = (
        one_rule(
            f"{_HAS_STORE.expression} && ({_ONE_REMOTE_SECRET.expression})",
            _HAS_STORE,
            _ONE_REMOTE_SECRET,
        ),
    )

    store_ref: PushStoreRef | None = None
    """Store to push to; one of secretStoreRefs."""
    remote_key: str = ""
    """Name of one remote secret for all matching keys; absent pushes each key on its own."""
    match: KeyMatch | None = None
    """Keys to push; absent means all."""
    rewrite: Annotated[list[PushRewrite], shaped(maxItems=MAX_REWRITES)] = []
    """Steps that turn keys into remote keys, first to last."""
    metadata: Json = None
    """Settings for the provider, usually a PushSecretMetadata object."""
    conversion_strategy: Annotated[str, _CONVERSION] = "None"
    """How keys of the Secret are converted; absent means None."""


class PushSecretSpec(Fragment, frozen=True, kw_only=True):
    """The values to push, the stores, and the refresh interval."""

    secret_store_refs: Annotated[list[PushStoreRef], shaped(maxItems=MAX_STORE_REFS)]
    """Stores to push to."""
    selector: PushSelector
    """Where the values come from."""
    refresh_interval: Interval = "1h0m0s"
    """Time between pushes: a Go duration or seconds; absent means 1h, 0 pushes only when this object changes."""
    update_policy: Annotated[str, one_of("Replace", "IfNotExists")] = "Replace"
    """Replace (default) overwrites the remote value; IfNotExists writes only where none exists."""
    deletion_policy: Annotated[str, one_of("Delete", "None")] = "None"
    """Delete removes remote secrets together with this object; None (default) keeps them."""
    data: list[PushData] = []
    """Keys to push, one by one, to every store. They win over dataTo."""
    data_to: Annotated[list[PushDataTo], shaped(maxItems=MAX_DATA_TO)] = []
    """Keys to push, many at once, each entry to one store."""
    template: Template | None = None
    """Template applied to the values before they are pushed."""


class PendingPush(Fragment, frozen=True, kw_only=True):
    """A push of generated values that has begun, recorded until its result is.

    An operator that finds it asks the backend whether the values arrived, instead of generating others.
    """

    time: NullableTimestamp = None
    """When the push began."""
    renew_time: NullableTimestamp = None
    """When the values are generated again; absent if they do not expire."""
    synced_resource_version: str = ""
    """Generation and metadata hash of this object at that time."""
    before: dict[str, dict[str, str]] = {}
    """Version of each remote value before the push: store, then entry; empty if there was none."""
    states: list[str] = []
    """Names of the GeneratorStates of the values."""


class PushSecretStatus(Fragment, frozen=True, kw_only=True):
    """The result of the last push."""

    refresh_time: NullableTimestamp = None
    """When the last push began, as far as it is recorded: a push that changes nothing is recorded at most every 5
    minutes."""
    renew_time: NullableTimestamp = None
    """When expiring generated values are generated again; absent if they do not expire."""
    next_attempt_time: NullableTimestamp = None
    """Latest time of the next retry after a failure; absent if that is soon, or only after a change."""
    synced_resource_version: str = ""
    """Generation and metadata hash of this object at the last push."""
    synced_push_secrets: dict[str, dict[str, PushData]] = {}
    """The pushed entries: store, then remote key, then the entry."""
    synced_versions: dict[str, dict[str, str]] = {}
    """Version of each remote value after the push, under the same keys; only if the provider reports it."""
    pending_push: PendingPush | None = None
    """A push of generated values whose result is not recorded yet."""
    conditions: Conditions = []
    """Ready says whether everything was pushed; SecretAlreadyExists is set while IfNotExists keeps existing values."""
    outcomes: list[KeyOutcome] = []
    """Entries of the spec that failed, or the field that a failed step is about, with the cause."""


class PushSecret(Object, kw_only=True):
    """Writes a Secret, or generated values, to stores."""

    spec: PushSecretSpec
    status: PushSecretStatus = msgspec.field(default_factory=PushSecretStatus)


PUSH_SECRET = CustomKind(
    PushSecret,
    group=CORE_GROUP,
    plural="pushsecrets",
    versions=("v1alpha1",),
    short_names=("ps",),
    columns=(age_column("AGE"), ready_reason("Status"), time_column("Last Sync", ".status.refreshTime")),
)


class ClusterPushSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which PushSecret goes into which namespaces."""

    push_secret_spec: PushSecretSpec
    """Spec of every PushSecret."""
    push_secret_name: ObjectName = ""
    """Name of every PushSecret; absent means the name of this object."""
    push_secret_metadata: ChildMetadata | None = None
    """Labels and annotations of every PushSecret."""
    namespace_selectors: list[LabelSelector] = []
    """Namespaces by label; one matching selector is enough."""
    refresh_time: Interval = "1h0m0s"
    """Time between checks of the namespaces; absent means 1h, 0 disables them."""


class ClusterPushSecretStatus(Fragment, frozen=True, kw_only=True):
    """Where the PushSecret exists."""

    push_secret_name: str = ""
    """Name of the PushSecrets."""
    failed_namespaces: list[FailedNamespace] = []
    """Namespaces where it could not be written."""
    provisioned_namespaces: list[str] = []
    """Namespaces where it exists."""
    conditions: Conditions = []
    """Ready says whether all namespaces have it."""


class ClusterPushSecret(Object, kw_only=True):
    """Keeps one PushSecret in every matching namespace."""

    spec: ClusterPushSecretSpec
    status: ClusterPushSecretStatus = msgspec.field(default_factory=ClusterPushSecretStatus)


CLUSTER_PUSH_SECRET = CustomKind(
    ClusterPushSecret,
    group=CORE_GROUP,
    plural="clusterpushsecrets",
    versions=("v1alpha1",),
    namespaced=False,
    columns=(age_column("AGE"), ready_reason("Status")),
)
