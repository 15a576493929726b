"""The rules of the CRDs as pure functions, for controllers and the command line.

A controller needs them because an older schema may have admitted an object. Each function returns every problem in a
fixed order; an empty list means the object is valid. A few rules exist only here, because the API server cannot check
them or because it must still accept existing manifests: documentation shows an ExternalSecret without `data` and
`dataFrom`, for example.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eso_api.externalsecret import (
    BOOTSTRAP_TOKEN,
    FORBIDDEN_POLICIES,
    SERVICE_ACCOUNT_NAME,
    SERVICE_ACCOUNT_TOKEN,
    DataFromEntry,
    ExternalSecretSpec,
    Target,
)
from eso_api.pushsecret import PushDataTo, PushSecretSpec, PushStoreRef
from eso_api.references import GENERATOR_KINDS, GENERATORS_GROUP, STORE_KINDS, GeneratorRef, StoreRef
from eso_api.shapes import API_VERSION_PATTERN, KIND_PATTERN
from eso_api.template import Template
from eso_api.v2.connection import AddressError, ProviderConfig, parse_address
from kubebase import durations


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violated rule: the field, and what to do. Never a secret value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def interval_problems(value: int | str, path: str) -> list[FieldError]:
    """Return the problems of a duration of any sign."""
    try:
        durations.seconds(value, field=path)
    except durations.DurationError as error:
        return [FieldError(path, str(error).removeprefix(f"{path}: "))]
    return []


def provider_config_problems(config: ProviderConfig, path: str = "spec.providerConfig") -> list[FieldError]:
    """Return every violated rule of a provider configuration."""
    problems = []
    if config.address and config.class_ref:
        problems.append(FieldError(path, "at most one of address, classRef may be set"))
    if (config.provider_ref is None) == (config.inline is None):
        problems.append(FieldError(path, "exactly one of providerRef, inline must be set"))
    if config.address:
        try:
            parse_address(config.address)
        except AddressError as error:
            problems.append(FieldError(f"{path}.address", str(error)))
    return problems


_SECRET_TARGETS = re.compile(r"(|data|annotations|labels)", re.IGNORECASE)


def external_secret_problems(spec: ExternalSecretSpec, path: str = "spec") -> list[FieldError]:
    """Return every violated rule of one spec."""
    return [problem for rule in EXTERNAL_SECRET_RULES for problem in rule(spec, path)]


def template_problems(target: Target, path: str = "spec.target") -> list[FieldError]:
    """Return the violated rules of the template; the controller checks them again before it renders a Secret."""
    if target.template is None:
        return []
    problems = _secret_type_problems(target.template, path)
    return problems + (_secret_target_problems(target.template, path) if writes_secret(target) else [])


def manifest_problems(target: Target, path: str = "spec.target") -> list[FieldError]:
    """Return the problems of `manifest`. The controller checks it again before it looks up the kind."""
    manifest = target.manifest
    if manifest is None:
        return []
    return [
        FieldError(f"{path}.manifest.{field}", f"{said!r} is no {what}")
        for field, said, pattern, what in (
            ("apiVersion", manifest.api_version, API_VERSION_PATTERN, "API version"),
            ("kind", manifest.kind, KIND_PATTERN, "kind"),
        )
        if not re.fullmatch(pattern.removesuffix("$"), said)
    ]


def writes_secret(target: Target) -> bool:
    """Return whether the target is a Secret: by default, or as a manifest in any spelling."""
    manifest = target.manifest
    return manifest is None or (manifest.api_version.rpartition("/")[0] == "" and manifest.kind == "Secret")


def store_ref_problems(ref: StoreRef, path: str) -> list[FieldError]:
    if ref.kind and not ref.api_version and ref.kind not in STORE_KINDS:
        return [FieldError(f"{path}.kind", f"without apiVersion, kind must be one of {', '.join(STORE_KINDS)}")]
    return []


def generator_ref_problems(ref: GeneratorRef, path: str) -> list[FieldError]:
    if ref.api_version.startswith(f"{GENERATORS_GROUP}/") and ref.kind not in GENERATOR_KINDS:
        return [FieldError(f"{path}.kind", f"{ref.kind} is no generator of {GENERATORS_GROUP}")]
    return []


def _policies(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    target = spec.target
    return [
        FieldError(
            f"{path}.target",
            f"deletionPolicy {deletion} cannot be combined with creationPolicy {creation}: {reason}",
        )
        for deletion, creation, reason in FORBIDDEN_POLICIES
        if (target.deletion_policy, target.creation_policy) == (deletion, creation)
    ]


def _something_to_fetch(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    if spec.data or spec.data_from:
        return []
    return [FieldError(path, "either data or dataFrom must hold an entry")]


def _template(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    return template_problems(spec.target, f"{path}.target")


def _references(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    problems = store_ref_problems(spec.secret_store_ref, f"{path}.secretStoreRef") if spec.secret_store_ref else []
    sources = [(f"{path}.data[{index}]", entry.source_ref) for index, entry in enumerate(spec.data)]
    sources += [(f"{path}.dataFrom[{index}]", entry.source_ref) for index, entry in enumerate(spec.data_from)]
    for where, source in sources:
        if source and source.store_ref:
            problems += store_ref_problems(source.store_ref, f"{where}.sourceRef.storeRef")
        if source and source.generator_ref:
            problems += generator_ref_problems(source.generator_ref, f"{where}.sourceRef.generatorRef")
    return problems


def _data_from(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    return [
        problem
        for index, entry in enumerate(spec.data_from)
        for problem in _data_from_entry(entry, f"{path}.dataFrom[{index}]")
    ]


def _duplicate_keys(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    """Check for duplicate keys. With Delete and Merge they are allowed: the last entry wins, as always."""
    if spec.target.deletion_policy != "Retain":
        return []
    earlier: set[str] = set()
    problems = []
    for index, entry in enumerate(spec.data):
        if entry.secret_key in earlier:
            message = (
                f"{entry.secret_key} is given twice; with deletionPolicy Retain each key may be given once: "
                "rename or remove one of the entries"
            )
            problems.append(FieldError(f"{path}.data[{index}].secretKey", message))
        earlier.add(entry.secret_key)
    return problems


def _durations(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    problems = interval_problems(spec.refresh_interval, f"{path}.refreshInterval")
    windows = spec.sync_windows.windows if spec.sync_windows else []
    for index, window in enumerate(windows):
        problems += interval_problems(window.duration, f"{path}.syncWindows.windows[{index}].duration")
    return problems


def _manifest(spec: ExternalSecretSpec, path: str) -> list[FieldError]:
    """Check the manifest like the schema does: an object may be older than that rule."""
    return manifest_problems(spec.target, f"{path}.target")


EXTERNAL_SECRET_RULES = (
    _manifest,
    _policies,
    _something_to_fetch,
    _template,
    _data_from,
    _duplicate_keys,
    _references,
    _durations,
)


def _secret_type_problems(template: Template, path: str) -> list[FieldError]:
    if template.type == BOOTSTRAP_TOKEN:
        return [FieldError(f"{path}.template.type", f"{BOOTSTRAP_TOKEN} is not allowed")]
    if template.type != SERVICE_ACCOUNT_TOKEN:
        return []
    problems = []
    if template.metadata and SERVICE_ACCOUNT_NAME in template.metadata.annotations:
        where = f"{path}.template.metadata.annotations"
        problems.append(FieldError(where, f"a {SERVICE_ACCOUNT_TOKEN} may not set {SERVICE_ACCOUNT_NAME}"))
    for index, source in enumerate(template.template_from):
        if source.target.lower() == "annotations":
            where = f"{path}.template.templateFrom[{index}].target"
            problems.append(FieldError(where, f"a {SERVICE_ACCOUNT_TOKEN} may not take annotations from templateFrom"))
    return problems


def _secret_target_problems(template: Template, path: str) -> list[FieldError]:
    return [
        FieldError(
            f"{path}.template.templateFrom[{index}].target",
            "for a Secret it must be Data, Annotations or Labels",
        )
        for index, source in enumerate(template.template_from)
        if not _SECRET_TARGETS.fullmatch(source.target)
    ]


def _data_from_entry(entry: DataFromEntry, path: str) -> list[FieldError]:
    generator = entry.source_ref.generator_ref if entry.source_ref else None
    if sum(source is not None for source in (entry.find, entry.extract, generator)) > 1:
        return [FieldError(path, "only one of extract, find and sourceRef.generatorRef may be set")]
    if entry.find is None and entry.extract is None and entry.source_ref is None:
        return [FieldError(path, "one of extract, find or sourceRef.generatorRef must be set")]
    if entry.source_ref and entry.source_ref.store_ref is None and generator is None:
        return [FieldError(f"{path}.sourceRef", "storeRef or generatorRef must be set")]
    return []


def push_secret_problems(spec: PushSecretSpec, path: str = "spec") -> list[FieldError]:
    """Return every violated rule of one spec."""
    return [problem for rule in PUSH_SECRET_RULES for problem in rule(spec, path)]


def _source(spec: PushSecretSpec, path: str) -> list[FieldError]:
    selector = spec.selector
    if (selector.secret is None) == (selector.generator_ref is None):
        return [FieldError(f"{path}.selector", "exactly one of secret, generatorRef must be set")]
    if selector.generator_ref:
        return generator_ref_problems(selector.generator_ref, f"{path}.selector.generatorRef")
    if selector.secret and not selector.secret.chooses:
        return [FieldError(f"{path}.selector.secret", "a source secret must name a Secret or have a selector")]
    return []


def _stores(spec: PushSecretSpec, path: str) -> list[FieldError]:
    problems = []
    for index, ref in enumerate(spec.secret_store_refs):
        where = f"{path}.secretStoreRefs[{index}]"
        problems += _kind_problems(ref, where)
        if not ref.chooses:
            problems.append(FieldError(where, "the reference has neither name nor labelSelector: set one"))
    return problems


def data_to_store_problems(spec: PushSecretSpec, path: str = "spec") -> list[FieldError]:
    """Return the violated rules of the stores of dataTo: each must be one of secretStoreRefs."""
    named = {(*ref.group_kind, ref.name) for ref in spec.secret_store_refs if ref.label_selector is None}
    problems = []
    for index, entry in enumerate(spec.data_to):
        where, ref = f"{path}.dataTo[{index}].storeRef", entry.store_ref
        if ref is None or not ref.chooses:
            problems.append(FieldError(where, "it must have a name or a labelSelector"))
        elif ref.name and (*ref.group_kind, ref.name) not in named:
            message = f"{ref.kind} {ref.name} is not one of {path}.secretStoreRefs by name: add it there"
            problems.append(FieldError(where, message))
    return problems


def _data_to(spec: PushSecretSpec, path: str) -> list[FieldError]:
    return [
        problem
        for index, entry in enumerate(spec.data_to)
        for problem in _data_to_entry(entry, f"{path}.dataTo[{index}]")
    ]


def _interval(spec: PushSecretSpec, path: str) -> list[FieldError]:
    return interval_problems(spec.refresh_interval, f"{path}.refreshInterval")


PUSH_SECRET_RULES = (_source, _stores, data_to_store_problems, _data_to, _interval)


def _data_to_entry(entry: PushDataTo, path: str) -> list[FieldError]:
    problems = [] if entry.store_ref is None else _kind_problems(entry.store_ref, f"{path}.storeRef")
    if entry.remote_key and entry.rewrite:
        problems.append(FieldError(f"{path}.rewrite", "remoteKey and rewrite exclude each other: remove one of them"))
    for index, step in enumerate(entry.rewrite):
        if (step.regexp is None) == (step.transform is None):
            message = "exactly one of regexp, transform must be set"
            problems.append(FieldError(f"{path}.rewrite[{index}]", message))
    return problems


def _kind_problems(ref: PushStoreRef, path: str) -> list[FieldError]:
    if ref.kind and not ref.api_version and ref.kind not in STORE_KINDS:
        return [FieldError(f"{path}.kind", f"without apiVersion, kind must be one of {', '.join(STORE_KINDS)}")]
    return []
