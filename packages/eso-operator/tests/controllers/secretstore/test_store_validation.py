"""From what a provider says, or fails to say, to a verdict; and the resolver's helpers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.certificates.problems import CertificateError, Problem, ProblemName
from eso_operator.controllers.secretstore.kinds import CLUSTER_STORE_V2, STORE, STORE_V2
from eso_operator.controllers.secretstore.status import (
    Broken,
    PerCaller,
    ProviderFacts,
    Starting,
    Throttled,
    Unverified,
    Valid,
    Verdict,
)
from eso_operator.controllers.secretstore.sync import Validator, verdict_of_error
from eso_operator.dependencies import ANY_PROVIDER, OnConnection, OnObject
from eso_operator.providers.errors import NoResponseError, cause_of
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import Providers, Resolver
from eso_operator.stores.resolved import (
    VALIDATION,
    BoundStore,
    Connection,
    Reason,
    ResolutionError,
    ResolvedStore,
    ServiceKey,
    need_to_read,
)
from eso_testkit.operator.clusters import (
    CORE,
    SETTINGS,
    NotedReads,
    ObjectsInMemory,
    caller,
    obj,
    provider_service,
    serving,
)
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.values import (
    CredentialKind,
    CredentialPath,
    Handshake,
    KindId,
    Operation,
    Validation,
    ValidationState,
)
from kubebase.meta import JsonObject, ObjectKey
from kuberun.testing.builders import metadata

BACKEND = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Backend")
TOKEN = (CredentialPath("/auth/tokenSecretRef", CredentialKind.SECRET_KEY),)
SERVED = serving(BACKEND, v1_key="fake", credentials=TOKEN)
FAKE = obj("external-secrets.io/v1", "SecretStore", "fake", "team", spec={"provider": {"fake": {"data": []}}})
SERVICE = provider_service("aws", CORE)


class ProvidersInMemory(Providers):
    """A directory whose providers answer when they are asked, or do not."""

    def __init__(self, answer: Handshake | ProviderError) -> None:
        self._answer = answer
        self._known: dict[str, Handshake | str] = {}
        self.asked: list[str] = []
        self.start_left = self.appear_left = self.back_left = 0.0
        self.outage: ProviderError | None = None

    @property
    def handshakes(self) -> Mapping[str, Handshake | str]:
        return self._known

    async def ensure(self, connection: Connection) -> Handshake:
        self.asked.append(connection.endpoint.label)
        if isinstance(self._answer, ProviderError):
            self._known[connection.key] = self._answer.message
            raise self._answer
        self._known[connection.key] = self._answer
        return self._answer

    def starting(self, connection: Connection) -> float:
        return self.start_left if connection.key in self._known else 0.0

    def unreachable(self, connection: Connection) -> ProviderError | None:
        del connection
        return self.outage

    def returned(self, connection: Connection) -> float:
        del connection
        return self.back_left

    def expecting(self, wanted: str) -> float:
        return self.appear_left if wanted else 0.0


class Growing(ObjectsInMemory):
    """Objects whose further kinds appear when they are requested."""

    def __init__(self, documents: list[JsonObject], hidden: list[JsonObject]) -> None:
        super().__init__(documents)
        self._hidden = hidden
        self.included: list[KindId] = []

    async def include(self, kind: KindId) -> bool:
        self.included.append(kind)
        found = [document for document in self._hidden if document["kind"] == kind.kind]
        for document in found:
            self.add(document)
        return bool(found)


class Opinion:
    """A gateway that validates everything the same way."""

    def __init__(self, answer: Validation | ProviderError) -> None:
        self._answer = answer

    async def validate(self, bound: BoundStore) -> Validation:
        del bound
        if isinstance(self._answer, ProviderError):
            raise self._answer
        return self._answer


def validator(
    *documents: JsonObject,
    providers: ProvidersInMemory | None = None,
    opinion: Validation | ProviderError = Validation(ValidationState.READY),  # noqa: B008 - a frozen value
    hidden: tuple[JsonObject, ...] = (),
    reads: NotedReads | None = None,
) -> Validator:
    async def bound(target: ResolvedStore) -> BoundStore:
        return await bind(target, reads or NotedReads())

    objects = Growing([*documents], [*hidden])
    gateway: Any = Opinion(opinion)
    return Validator(Resolver(objects, providers or ProvidersInMemory(SERVED), SETTINGS), bound, gateway)


ERROR = ProviderError(ErrorReason.BACKEND_ERROR, "cannot tell")
EVERYTHING = frozenset(Operation)


@pytest.mark.parametrize(
    ("opinion", "expected"),
    [
        pytest.param(Validation(ValidationState.READY), Valid, id="ready"),
        pytest.param(Validation(ValidationState.UNKNOWN), PerCaller, id="unknown without an error"),
        pytest.param(Validation(ValidationState.UNKNOWN, error=ERROR), Unverified, id="unknown with one"),
        pytest.param(Validation(ValidationState.INVALID, error=ERROR), Broken, id="invalid with an error"),
        pytest.param(Validation(ValidationState.INVALID), Broken, id="invalid without one is not success"),
        pytest.param(ERROR, Broken, id="the call failed"),
        pytest.param(ProviderError(ErrorReason.RATE_LIMITED, "slow", retry_after=7.0), Throttled, id="throttled"),
    ],
)
async def test_a_verdict_follows_what_the_provider_says(opinion: Any, expected: type[Verdict]) -> None:
    validated = await validator(FAKE, SERVICE, opinion=opinion).validate(STORE, metadata("fake", "team"))

    assert isinstance(validated.verdict, expected)


async def test_operations_are_narrowed_and_never_widened_by_a_validation() -> None:
    narrowed = Validation(ValidationState.READY, operations=frozenset({Operation.GET}))

    validated = await validator(FAKE, SERVICE, opinion=narrowed).validate(STORE, metadata("fake", "team"))

    assert validated.verdict == Valid(ProviderFacts(frozenset({Operation.GET}), "maintained"))


@pytest.mark.parametrize("reason", list(ErrorReason), ids=str)
def test_every_reason_of_the_wire_gives_a_verdict_with_a_cause_in_camel_case(reason: ErrorReason) -> None:
    """R117."""
    error = ProviderError(reason, "what happened", retry_after=3.0)

    match verdict_of_error(error):
        case Broken(cause=cause, message=message, retry_after=retry_after):
            assert cause[0].isupper()
            assert "_" not in cause
            assert cause != "SecretSyncedError"
            assert (message, retry_after) == ("what happened", 3.0)
        case Throttled(retry_after=retry_after):
            assert (reason, retry_after) == (ErrorReason.RATE_LIMITED, 3.0)
        case other:
            pytest.fail(f"{other} for an error")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        pytest.param(
            CertificateError(Problem(ProblemName.CLIENT_CERT_EXPIRED, "x")), "ClientCertExpired", id="certificate"
        ),
        pytest.param(TransportError("x"), "ProviderUnreachable", id="transport without a diagnosis"),
        pytest.param(NoResponseError("x"), "ProviderTimeout", id="silence"),
        pytest.param(ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "x"), "BackendUnavailable", id="backend down"),
        pytest.param(ProviderError(ErrorReason.PROTOCOL_INCOMPATIBLE, "x"), "ProviderIncompatible", id="R141"),
    ],
)
def test_the_cause_says_where_it_broke(error: ProviderError, cause: str) -> None:
    assert cause_of(error) == cause


async def test_a_provider_that_has_not_been_asked_is_asked_and_the_store_depends_on_it() -> None:
    providers = ProvidersInMemory(SERVED)

    validated = await validator(FAKE, SERVICE, providers=providers).validate(STORE, metadata("fake", "team"))

    assert providers.asked == [f"{CORE}/aws"]
    assert isinstance(validated.verdict, Valid)
    assert any(isinstance(dependency, OnConnection) for dependency in validated.depends_on)
    assert ANY_PROVIDER not in validated.depends_on
    assert OnObject("external-secrets.io", "SecretStore", ObjectKey("team", "fake")) not in validated.depends_on


def starting(seconds: float) -> ProvidersInMemory:
    """Providers that do not answer and may be starting."""
    providers = ProvidersInMemory(TransportError("nothing listens"))
    providers.start_left = seconds
    return providers


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(SERVICE, id="its Service does not say what it serves"),
        pytest.param(provider_service("aws", CORE, v1_keys="fake"), id="its Service says what it serves"),
    ],
)
async def test_a_store_whose_provider_may_be_starting_waits_and_is_not_told_to_install_it(service: JsonObject) -> None:
    waits = await validator(FAKE, service, providers=starting(7.0)).validate(STORE, metadata("fake", "team"))
    broken = await validator(FAKE, service, providers=starting(0.0)).validate(STORE, metadata("fake", "team"))

    assert waits.verdict == Starting("ProviderStarting", f"provider {CORE}/aws is starting", 7.0)
    assert ANY_PROVIDER in waits.depends_on
    assert isinstance(broken.verdict, Broken)


async def test_a_store_waits_for_a_provider_that_eso_up_may_start() -> None:
    expected = ServiceKey(CORE, "provider-fake")
    settings = replace(SETTINGS, trusted={expected: "127.0.0.1:1"}, expected=frozenset({expected}))
    providers = ProvidersInMemory(SERVED)
    resolver = Resolver(Growing([FAKE], []), providers, settings)
    verdicts = []

    for left in (5.0, 0.0):
        providers.appear_left = left
        with pytest.raises(ResolutionError) as raised:
            await resolver.resolve(StoreRef(name="fake"), caller("team"), VALIDATION)
        verdicts.append((raised.value.reason, raised.value.waits))

    assert verdicts == [(Reason.STARTING, 5.0), (Reason.NOT_INSTALLED, 0.0)]


async def test_a_store_without_a_provider_waits_for_any() -> None:
    validated = await validator(FAKE).validate(STORE, metadata("fake", "team"))

    assert isinstance(validated.verdict, Broken)
    assert validated.verdict.cause == "ProviderNotInstalled"
    assert ANY_PROVIDER in validated.depends_on


async def test_a_missing_secret_is_named_and_waited_for() -> None:
    reference = {"name": "token", "key": "token"}
    store = obj(
        "external-secrets.io/v1",
        "SecretStore",
        "fake",
        "team",
        spec={"provider": {"fake": {"auth": {"tokenSecretRef": reference}}}},
    )
    reads = NotedReads(missing=frozenset({ObjectKey("team", "token")}))

    validated = await validator(store, SERVICE, reads=reads).validate(STORE, metadata("fake", "team"))

    assert isinstance(validated.verdict, Broken)
    assert (validated.verdict.cause, "token" in validated.verdict.message) == ("CredentialsNotFound", True)
    assert OnObject("", "Secret", ObjectKey("team", "token")) in validated.depends_on


@pytest.mark.parametrize(
    "opinion",
    [
        pytest.param(Validation(ValidationState.READY), id="accepted"),
        pytest.param(Validation(ValidationState.INVALID, error=ERROR), id="refused by a verdict"),
        pytest.param(ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no"), id="refused by an error of the call"),
        pytest.param(TransportError("refused"), id="not even asked"),
    ],
)
async def test_whatever_comes_of_it_a_store_hears_when_its_credentials_change(opinion: Any) -> None:
    spec = {"provider": {"fake": {"auth": {"tokenSecretRef": {"name": "token", "key": "token"}}}}}
    store = obj("external-secrets.io/v1", "SecretStore", "fake", "team", spec=spec)

    validated = await validator(store, SERVICE, opinion=opinion).validate(STORE, metadata("fake", "team"))

    assert OnObject("", "Secret", ObjectKey("team", "token")) in validated.depends_on


async def test_a_store_hears_when_its_own_certificates_change() -> None:
    """R84."""
    auth = {"clientCertificate": {"secretRef": {"name": "own"}}}
    config = {"auth": auth, "inline": {"kind": "Backend", "spec": {}}}
    store = obj(V2_STORE["apiVersion"], "SecretStore", "store", "team", spec={"providerConfig": config})

    validated = await validator(store, SERVICE).validate(STORE_V2, metadata("store", "team"))

    assert OnObject("", "Secret", ObjectKey("team", "own")) in validated.depends_on


CONFIG = {"providerConfig": {"providerRef": {"kind": "Backend", "name": "one"}}}
V2_STORE = obj("secretstore.external-secrets.io/v2alpha1", "SecretStore", "store", "team", spec=CONFIG)
ONE = obj(BACKEND.api_version, "Backend", "one", "team", spec={})


async def test_an_unwatched_kind_is_watched_once_a_store_names_it() -> None:
    validated = await validator(V2_STORE, SERVICE, hidden=(ONE,)).validate(STORE_V2, metadata("store", "team"))

    assert isinstance(validated.verdict, Valid)
    assert OnObject(BACKEND.group, "Backend", ObjectKey("team", "one")) in validated.depends_on


async def test_a_kind_that_does_not_exist_is_asked_for_once_and_named() -> None:
    objects = Growing([V2_STORE, SERVICE], [])
    resolver = Resolver(objects, ProvidersInMemory(SERVED), SETTINGS)
    ref = StoreRef(api_version=V2_STORE["apiVersion"], kind="SecretStore", name="store")

    with pytest.raises(ResolutionError) as caught:
        await resolver.resolve(ref, caller("team"), VALIDATION)

    assert caught.value.reason is Reason.UNKNOWN_KIND
    assert objects.included == [BACKEND]


async def test_a_failed_handshake_is_the_cause_not_the_missing_connection() -> None:
    failure = ProviderError(ErrorReason.PROTOCOL_INCOMPATIBLE, "speaks 9.0")
    declared = provider_service("aws", CORE, v1_keys="fake")

    validated = await validator(FAKE, declared, providers=ProvidersInMemory(failure)).validate(
        STORE, metadata("fake", "team")
    )

    assert validated.verdict == Broken("ProviderIncompatible", "speaks 9.0")


async def test_the_operations_of_a_store_nobody_can_check_are_known_all_the_same() -> None:
    """R89: a cluster store with the credentials of its users."""
    spec = {**CONFIG, "authenticationScope": "ManifestNamespace"}
    store = obj("secretstore.external-secrets.io/v2alpha1", "ClusterSecretStore", "shared", spec=spec)

    validated = await validator(store, SERVICE, hidden=(ONE,)).validate(CLUSTER_STORE_V2, metadata("shared", ""))

    assert isinstance(validated.verdict, PerCaller)
    assert validated.verdict.facts.operations == EVERYTHING


# --- callers of a store whose provider is away ------------------------------------------------------------------------

UNREADY = {**FAKE, "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "InvalidProviderConfig"}]}}


async def failed(providers: ProvidersInMemory) -> ResolutionError | ProviderError:
    resolver = Resolver(Growing([UNREADY, provider_service("aws", CORE, v1_keys="fake")], []), providers, SETTINGS)
    with pytest.raises((ResolutionError, ProviderError)) as raised:
        await resolver.resolve(StoreRef(name="fake"), caller("team"), need_to_read(Operation.GET))
    error = raised.value
    assert isinstance(error, ResolutionError | ProviderError)
    return error


async def test_a_caller_of_a_store_that_is_not_ready_reports_the_outage_of_its_provider() -> None:
    """In the words of a call, so that the status of the caller stays the same when the store notices the outage."""
    providers = ProvidersInMemory(SERVED)
    providers.outage = TransportError("nothing listens")

    assert await failed(providers) is providers.outage


async def test_a_caller_waits_for_the_validation_that_the_return_of_a_provider_causes() -> None:
    providers = ProvidersInMemory(SERVED)
    providers.back_left = 20.0

    error = await failed(providers)

    assert isinstance(error, ResolutionError)
    assert (error.reason, error.waits) == (Reason.NOT_READY, 20.0)


async def test_a_caller_of_a_store_that_is_not_ready_for_another_reason_reports_the_store() -> None:
    error = await failed(ProvidersInMemory(SERVED))

    assert isinstance(error, ResolutionError)
    assert (error.reason, error.waits) == (Reason.NOT_READY, 0.0)
