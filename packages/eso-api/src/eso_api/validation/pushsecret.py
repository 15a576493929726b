"""Rules of PushSecret, also for the spec inside ClusterPushSecret."""

from __future__ import annotations

from eso_api.pushsecret import PushDataTo, PushSecretSpec, PushStoreRef
from eso_api.references import STORE_KINDS
from eso_api.validation.externalsecret import generator_ref_problems
from eso_api.validation.problems import FieldError, interval_problems


def push_secret_problems(spec: PushSecretSpec, path: str = "spec") -> list[FieldError]:
    """Return every violated rule of one spec."""
    return [problem for rule in RULES for problem in rule(spec, path)]


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


RULES = (_source, _stores, data_to_store_problems, _data_to, _interval)


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
