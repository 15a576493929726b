"""ExternalSecret: values of stores and generators in a Secret; ClusterExternalSecret: one in every matching namespace.

v1 and v1beta1 have the same schema. Copy the spec of a child from the stored JSON of its ClusterExternalSecret, not
from `ExternalSecretSpec`: a decoded spec cannot tell explicit defaults from absent fields, and the child should show
what the parent says.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from eso_api.common import AUTO, Conditions, FailedNamespace, KeyOutcome, RefreshTrigger
from eso_api.crd import CustomKind, ready_reason, ready_status, spec_column, time_column
from eso_api.references import CORE_GROUP, GeneratorRef, LabelSelector, StoreRef
from eso_api.shapes import (
    ApiVersion,
    DataKey,
    Duration,
    Fragment,
    Interval,
    KindName,
    NamespaceName,
    NullableTimestamp,
    ObjectName,
    Rule,
    exactly_one,
    one_of,
    one_rule,
    shaped,
    shaped_as,
)
from eso_api.template import DecodingStrategy, Rewrite, Template
from kubebase.meta import Object

# The API server accepts a rule over a list only if the list has a maximum length. These limits are far beyond what fits
# into a Secret in practice.
MAX_DATA = 10_000
MAX_DATA_FROM = 1000
MAX_WINDOWS = 100
MAX_SCHEDULE = 256

DEFAULT_INTERVAL = "1h0m0s"

SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - a Secret type
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
SECRET_TYPE_LABEL = "external-secrets.io/type"  # noqa: S105 - the name of a label, not a credential
"""Permits webhooks to send a Secret. Only an author of the Secret itself may set it; a target never has it."""
BOOTSTRAP_TOKEN = "bootstrap.kubernetes.io/token"  # noqa: S105 - a Secret type
TOKEN_TYPES = frozenset({SERVICE_ACCOUNT_TOKEN, BOOTSTRAP_TOKEN})
"""Types of Secrets that a cluster fills with a token, or accepts as one."""

# Pairs of deletionPolicy and creationPolicy that would delete what the ExternalSecret did not create, with the reason.
FORBIDDEN_POLICIES = (
    ("Delete", "Merge", "the Secret has another owner"),
    ("Delete", "None", "the Secret is never created"),
    ("Delete", "CreateOrMerge", "the Secret may have another owner"),
    ("Merge", "None", "the Secret is never written"),
)

_NO_ACCOUNT_ANNOTATION = (
    f"!(has(self.metadata) && has(self.metadata.annotations) && '{SERVICE_ACCOUNT_NAME}' in self.metadata.annotations)"
)
_NO_ANNOTATIONS_FROM = (
    "!(has(self.templateFrom) && self.templateFrom.exists(t, has(t.target) && t.target.matches('(?i)^annotations$')))"
)

_CONVERSION = one_of("Default", "Unicode")
_NULL_BYTES = one_of("Ignore", "Fail")
_SCHEDULE = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|@every [^\s]+.*|[^\s]+( [^\s]+){4})$"


class RemoteRef(Fragment, frozen=True, kw_only=True):
    """The location of a value in the backend."""

    key: str
    """Name of the remote secret."""
    property: str = ""
    """Path inside the remote secret."""
    version: str = ""
    """Version of the remote secret; absent means the latest."""
    metadata_policy: Annotated[str, one_of("None", "Fetch")] = "None"
    """Fetch reads the metadata (tags, labels) of the remote secret instead of its value."""
    conversion_strategy: Annotated[str, _CONVERSION] = "Default"
    """How characters that a Secret key cannot hold are replaced; used by dataFrom only."""
    decoding_strategy: DecodingStrategy = "None"
    """How the value is decoded; absent means None."""
    null_byte_policy: Annotated[str, _NULL_BYTES] = "Ignore"
    """Fail refuses values that contain a null byte."""


class FindName(Fragment, frozen=True, kw_only=True):
    """Remote secrets by name."""

    regexp: str = ""
    """Expression (RE2) that must match somewhere in the name."""


class Find(Fragment, frozen=True, kw_only=True):
    """Many remote secrets, by name or by tags."""

    path: str | None = None
    """Where to search; its meaning depends on the provider."""
    name: FindName | None = None
    """Names to take."""
    tags: dict[str, str] = {}
    """Tags that a remote secret must carry."""
    conversion_strategy: Annotated[str, _CONVERSION] = "Default"
    """How characters that a Secret key cannot hold are replaced."""
    decoding_strategy: DecodingStrategy = "None"
    """How the values are decoded; absent means None."""
    null_byte_policy: Annotated[str, _NULL_BYTES] = "Ignore"
    """Fail refuses values that contain a null byte."""


class SourceRef(Fragment, frozen=True, kw_only=True):
    """A source for this entry alone."""

    SHAPE: ClassVar = exactly_one()

    store_ref: StoreRef | None = None
    """Store to read instead of spec.secretStoreRef."""
    generator_ref: GeneratorRef | None = None
    """Generator that makes the values; not for entries of data."""


class DataEntry(Fragment, frozen=True, kw_only=True):
    """One key of the target, from one remote value."""

    secret_key: DataKey
    """Key of the target."""
    remote_ref: RemoteRef
    """Where the value lives."""
    source_ref: SourceRef | None = None
    """Store for this entry alone."""


class DataFromEntry(Fragment, frozen=True, kw_only=True):
    """Many keys of the target from one source."""

    RULES: ClassVar = (
        one_rule(
            "has(self.extract) ? !has(self.find) && !(has(self.sourceRef) && has(self.sourceRef.generatorRef))"
            " : has(self.find) ? !(has(self.sourceRef) && has(self.sourceRef.generatorRef))"
            " : has(self.sourceRef)",
            Rule(
                "has(self.find) || has(self.extract) || has(self.sourceRef)",
                "one of extract, find or sourceRef.generatorRef must be set",
            ),
            Rule("false", "only one of extract, find and sourceRef.generatorRef may be set"),
        ),
    )

    extract: RemoteRef | None = None
    """All properties of one remote secret."""
    find: Find | None = None
    """Many remote secrets by name or tags."""
    source_ref: SourceRef | None = None
    """Store for this entry alone, or a generator."""
    rewrite: list[Rewrite] = []
    """Steps that rename the keys, first to last. With any step, conversionStrategy does not apply."""


class Manifest(Fragment, frozen=True, kw_only=True):
    """A kind other than Secret to write to."""

    api_version: ApiVersion
    """API version of the object."""
    kind: KindName
    """Kind of the object."""


class TargetTemplate(Template, frozen=True, kw_only=True):
    """How values become the data and metadata of the object."""

    RULES: ClassVar = (
        one_rule(
            f"!has(self.type) || !(self.type in ['{BOOTSTRAP_TOKEN}', '{SERVICE_ACCOUNT_TOKEN}'])"
            f" || (self.type != '{BOOTSTRAP_TOKEN}' && {_NO_ACCOUNT_ANNOTATION} && {_NO_ANNOTATIONS_FROM})",
            Rule(f"self.type != '{BOOTSTRAP_TOKEN}'", f"type {BOOTSTRAP_TOKEN} is not allowed"),
            Rule(
                _NO_ACCOUNT_ANNOTATION, f"a {SERVICE_ACCOUNT_TOKEN} may not set the annotation {SERVICE_ACCOUNT_NAME}"
            ),
            Rule(_NO_ANNOTATIONS_FROM, f"a {SERVICE_ACCOUNT_TOKEN} may not take annotations from templateFrom"),
        ),
    )


def _policy_rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(
            f"!(has(self.deletionPolicy) && self.deletionPolicy == '{deletion}'"
            f" && has(self.creationPolicy) && self.creationPolicy == '{creation}')",
            f"deletionPolicy {deletion} cannot be combined with creationPolicy {creation}: {reason}",
        )
        for deletion, creation, reason in FORBIDDEN_POLICIES
    )


def _policies_fit() -> str:
    forbidden = [f"{deletion} {creation}" for deletion, creation, _ in FORBIDDEN_POLICIES]
    return (
        "!has(self.deletionPolicy) || self.deletionPolicy == 'Retain' || !has(self.creationPolicy)"
        f" || !(self.deletionPolicy + ' ' + self.creationPolicy in {forbidden})"
    )


def _template_targets() -> dict[str, Any]:
    """Return the `SHAPE` of a target: a template writes to other parts of a Secret than these only in other kinds."""
    target = {"target": {"pattern": "(?i)^(|data|annotations|labels)$"}}
    template_from = {"templateFrom": {"items": {"properties": target}}}
    a_secret = {"properties": {"apiVersion": {"enum": ["v1"]}, "kind": {"enum": ["Secret"]}}}
    return {
        "anyOf": [
            {"properties": {"template": {"properties": template_from}}},
            {"required": ["manifest"], "properties": {"manifest": {"not": a_secret}}},
        ]
    }


class Target(Fragment, frozen=True, kw_only=True):
    """The object that is written to the cluster."""

    RULES: ClassVar = (one_rule(_policies_fit(), *_policy_rules()),)
    SHAPE: ClassVar = _template_targets()

    name: ObjectName = ""
    """Name of the target; absent means the name of the ExternalSecret."""
    creation_policy: Annotated[str, one_of("Owner", "Orphan", "Merge", "None", "CreateOrMerge")] = "Owner"
    """Owner (default) creates and owns the target; Orphan creates it; Merge only adds to an existing one;
    CreateOrMerge does either; None writes nothing."""
    deletion_policy: Annotated[str, one_of("Delete", "Merge", "Retain")] = "Retain"
    """When values vanish from the backend: Retain (default) keeps the target, Delete deletes it, Merge removes keys."""
    immutable: bool = False
    """Make the Secret immutable; it is then written once."""
    manifest: Manifest | None = None
    """Write to this kind instead of a Secret."""
    template: Annotated[Template | None, shaped_as(TargetTemplate)] = None
    """How values become data and metadata of the target."""


class SyncWindow(Fragment, frozen=True, kw_only=True):
    """A recurring time window."""

    schedule: Annotated[str, shaped(minLength=1, maxLength=MAX_SCHEDULE, pattern=_SCHEDULE)]
    """When the window opens: five cron fields, or a word such as @daily. UTC."""
    duration: Duration
    """Duration of the window."""


class SyncWindows(Fragment, frozen=True, kw_only=True):
    """When periodic refreshes may run."""

    kind: Annotated[str, one_of("allow", "deny")]
    """allow refreshes only inside the windows, deny only outside."""
    windows: Annotated[list[SyncWindow], shaped(minItems=1, maxItems=MAX_WINDOWS)]
    """The windows."""


class ExternalSecretSpec(Fragment, frozen=True, kw_only=True):
    """The values to fetch, the refresh interval, and the target."""

    secret_store_ref: StoreRef | None = None
    """Store for every entry without a sourceRef."""
    target: Target = msgspec.field(default_factory=Target)
    """The object that is written to the cluster."""
    refresh_policy: Annotated[str, one_of("CreatedOnce", "Periodic", "OnChange")] = "Periodic"
    """Periodic (default) refreshes every refreshInterval, OnChange when this object changes, CreatedOnce once."""
    refresh_interval: Interval = DEFAULT_INTERVAL
    """Time between refreshes: a Go duration or seconds; absent means 1h, 0 or less refreshes once."""
    refresh_trigger: RefreshTrigger = AUTO
    """Auto (default) also refreshes when the provider reports a change, if it can; Poll only every refreshInterval."""
    sync_windows: SyncWindows | None = None
    """When periodic refreshes may run."""
    data: Annotated[list[DataEntry], shaped(maxItems=MAX_DATA)] = []
    """Keys of the target, one by one. They win over dataFrom. The operator refuses the same secretKey twice if
    deletionPolicy is Retain."""
    data_from: Annotated[list[DataFromEntry], shaped(maxItems=MAX_DATA_FROM)] = []
    """Keys of the target, many at once; a later entry wins."""


class Binding(Fragment, frozen=True, kw_only=True):
    """The Secret that was written, as servicebinding.io expects it."""

    SHAPE: ClassVar = {"x-kubernetes-map-type": "atomic"}

    name: str = ""
    """Name of the Secret."""


class MadeManifest(Fragment, frozen=True, kw_only=True):
    """An object of a kind other than Secret, by name."""

    api_version: str
    """API version under which it was written."""
    kind: str
    """Kind of the object."""
    name: str
    """Name of the object."""


class SourceNames(Fragment, frozen=True, kw_only=True):
    """Kinds and names of the sources, as far as spec.secretStoreRef does not name them."""

    kind: str = ""
    """SecretStore if spec.secretStoreRef has no kind; without spec.secretStoreRef, the kinds of all sources."""
    name: str = ""
    """Names of the sources; absent if spec.secretStoreRef has a name."""


class ExternalSecretStatus(Fragment, frozen=True, kw_only=True):
    """The result of the last sync."""

    refresh_time: NullableTimestamp = None
    """When the values were last fetched, as far as it is recorded: a refresh that changes nothing is recorded at most
    every 5 minutes."""
    renew_time: NullableTimestamp = None
    """When expiring values are fetched or generated again; absent if they do not expire."""
    next_attempt_time: NullableTimestamp = None
    """Latest time of the next retry after a failure; absent if that is soon, or only after a change."""
    synced_resource_version: str = ""
    """Generation and metadata hash of this object at the last sync."""
    synced_target_version: str = ""
    """The resourceVersion of the target Secret at the last sync, as far as it is recorded: after a restart the operator
    reads no Secret that still has it. Recorded for creationPolicy Owner."""
    conditions: Conditions = []
    """Ready says whether the target is up to date."""
    binding: Binding | None = None
    """The Secret that was written."""
    manifests: list[MadeManifest] = []
    """Objects of kinds other than Secret that it may have created; former targets are removed."""
    outcomes: list[KeyOutcome] = []
    """Entries of the spec that failed, or the field that a failed step is about, with the cause."""
    secret_store_ref: SourceNames | None = None
    """What `kubectl get` shows as store if the spec leaves it out."""
    refresh_interval: str = ""
    """The default interval, which `kubectl get` shows if the spec has none."""


class ExternalSecret(Object, kw_only=True):
    """Fetches values from a backend and keeps a Secret up to date with them."""

    spec: ExternalSecretSpec = msgspec.field(default_factory=ExternalSecretSpec)
    status: ExternalSecretStatus = msgspec.field(default_factory=ExternalSecretStatus)


EXTERNAL_SECRET = CustomKind(
    ExternalSecret,
    group=CORE_GROUP,
    plural="externalsecrets",
    versions=("v1", "v1beta1"),
    short_names=("es",),
    columns=(
        spec_column("StoreType", "secretStoreRef.kind"),
        spec_column("Store", "secretStoreRef.name"),
        spec_column("Refresh Interval", "refreshInterval"),
        ready_reason("Status"),
        ready_status("Ready"),
        time_column("Last Sync", ".status.refreshTime"),
    ),
    selectable_fields=(".spec.secretStoreRef.name", ".spec.secretStoreRef.kind", ".spec.target.name"),
)


class ChildMetadata(Fragment, frozen=True, kw_only=True):
    """Labels and annotations of every child; it gets no others."""

    labels: dict[str, str] = {}
    """Labels."""
    annotations: dict[str, str] = {}
    """Annotations."""


class ClusterExternalSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which ExternalSecret goes into which namespaces."""

    external_secret_spec: ExternalSecretSpec
    """Spec of every ExternalSecret."""
    external_secret_name: ObjectName = ""
    """Name of every ExternalSecret; absent means the name of this object."""
    external_secret_metadata: ChildMetadata | None = None
    """Labels and annotations of every ExternalSecret."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by label. Prefer namespaceSelectors."""
    namespace_selectors: list[LabelSelector] = []
    """Namespaces by label; one matching selector is enough."""
    namespaces: list[NamespaceName] = []
    """Namespaces by name, added to the selected ones. Prefer namespaceSelectors."""
    refresh_time: Interval = DEFAULT_INTERVAL
    """Time between checks of the namespaces; absent means 1h, 0 disables them."""


class ChildSources(Fragment, frozen=True, kw_only=True):
    """The sources of the ExternalSecrets, as far as their secretStoreRef does not name them."""

    secret_store_ref: SourceNames | None = None
    """What `kubectl get` shows as store."""


class ClusterExternalSecretStatus(Fragment, frozen=True, kw_only=True):
    """Where the ExternalSecret exists."""

    external_secret_name: str = ""
    """Name of the ExternalSecrets."""
    failed_namespaces: list[FailedNamespace] = []
    """Namespaces where it could not be written."""
    provisioned_namespaces: list[str] = []
    """Namespaces where it exists."""
    conditions: Conditions = []
    """Ready says whether all namespaces have it."""
    external_secret_spec: ChildSources | None = None
    """The sources that `kubectl get` shows if the spec's secretStoreRef does not name a store."""
    refresh_time: str = ""
    """The default interval, which `kubectl get` shows if the spec has none."""


class ClusterExternalSecret(Object, kw_only=True):
    """Keeps one ExternalSecret in every matching namespace."""

    spec: ClusterExternalSecretSpec
    status: ClusterExternalSecretStatus = msgspec.field(default_factory=ClusterExternalSecretStatus)


CLUSTER_EXTERNAL_SECRET = CustomKind(
    ClusterExternalSecret,
    group=CORE_GROUP,
    plural="clusterexternalsecrets",
    versions=("v1", "v1beta1"),
    namespaced=False,
    short_names=("ces",),
    columns=(
        spec_column("Store", "externalSecretSpec.secretStoreRef.name"),
        spec_column("Refresh Interval", "refreshTime"),
        ready_status("Ready"),
    ),
)
