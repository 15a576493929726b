"""Rules of stores: v1 by provider block, v2 and Provider by provider configuration.

What a provider requires of its own block is the provider's business. Regular expressions are RE2, whose engine is not a
dependency of this package: the caller passes a function that says what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eso_api.policies import NamespaceCondition, RetrySettings
from eso_api.secretstore import SecretStoreSpec
from eso_api.stores.block import PROVIDER_KEYS
from eso_api.v2.address import AddressError, parse_address
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import ClusterPolicy, Policy
from eso_api.validation.problems import FieldError, interval_problems, positive_interval_problems

RegexpProblem = Callable[[str], str | None]


def store_problems(spec: SecretStoreSpec, regexp_problem: RegexpProblem, path: str = "spec") -> list[FieldError]:
    """Every broken rule of a v1 SecretStore or ClusterSecretStore."""
    problems = _provider_problems(spec, f"{path}.provider")
    problems += positive_interval_problems(spec.refresh_interval, f"{path}.refreshInterval")
    problems += _retry_problems(spec.retry_settings, f"{path}.retrySettings")
    return problems + _condition_problems(spec.conditions, regexp_problem, f"{path}.conditions")


def policy_problems(policy: Policy, regexp_problem: RegexpProblem, path: str = "spec") -> list[FieldError]:
    """Every broken rule of the fields that v2 stores, generators and providers have in common."""
    problems = positive_interval_problems(policy.refresh_interval, f"{path}.refreshInterval")
    problems += _retry_problems(policy.retry_settings, f"{path}.retrySettings")
    if isinstance(policy, ClusterPolicy):
        problems += _condition_problems(policy.conditions, regexp_problem, f"{path}.conditions")
    return problems


def provider_config_problems(config: ProviderConfig, path: str = "spec.providerConfig") -> list[FieldError]:
    """Every broken rule of a provider configuration, wherever it stands."""
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


def namespaced_config_problems(
    config: ProviderConfig, namespace: str, path: str = "spec.providerConfig"
) -> list[FieldError]:
    """Further rules for a configuration inside a namespaced object: it may only name its own namespace."""
    named = {
        f"{path}.providerRef.namespace": config.provider_ref.namespace if config.provider_ref else "",
        f"{path}.auth.serviceAccountRef.namespace": _service_account_namespace(config),
        f"{path}.auth.clientCertificate.secretRef.namespace": _certificate_namespace(config),
    }
    return [
        FieldError(where, f"must be {namespace} or absent: a namespaced object may not reach another namespace")
        for where, value in named.items()
        if value not in ("", namespace)
    ]


def _provider_problems(spec: SecretStoreSpec, path: str) -> list[FieldError]:
    key = spec.provider_key
    if not key:
        return [FieldError(path, f"exactly one provider must be set, not {len(spec.provider)}")]
    if key not in PROVIDER_KEYS:
        return [FieldError(path, f"{key} is no known provider")]
    return []


def _retry_problems(settings: RetrySettings | None, path: str) -> list[FieldError]:
    if settings is None or settings.retry_interval is None:
        return []
    return interval_problems(settings.retry_interval, f"{path}.retryInterval")


def _condition_problems(
    conditions: Sequence[NamespaceCondition], regexp_problem: RegexpProblem, path: str
) -> list[FieldError]:
    return [
        FieldError(f"{path}[{index}].namespaceRegexes[{position}]", problem)
        for index, condition in enumerate(conditions)
        for position, regexp in enumerate(condition.namespace_regexes)
        if (problem := regexp_problem(regexp)) is not None
    ]


def _service_account_namespace(config: ProviderConfig) -> str:
    account = config.auth.service_account_ref if config.auth else None
    return account.namespace if account else ""


def _certificate_namespace(config: ProviderConfig) -> str:
    certificate = config.auth.client_certificate if config.auth else None
    return certificate.secret_ref.namespace if certificate and certificate.secret_ref else ""
