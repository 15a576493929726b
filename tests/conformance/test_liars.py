"""The suite can fail: in front of an honest provider a proxy breaks one promise, and the case about it notices (R105).

Each liar comes with the sentence of the case that must catch it. The same case passes on a proxy that changes nothing,
so it is the lie that is caught and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # the wheel carries no type information

from eso_conformance import CASES, Case, CaseResult, Profile, Target, Verdict, read_identity
from eso_conformance import fixture as fixtures
from eso_conformance.runner import attempt, fixture_of, greet, kinds_for
from eso_conformance.subject import Subject, channel_to
from eso_operator.certificates.local import LocalCertificates
from eso_testkit.cli.providerprocess import ProviderProcess, local_certificates, serve_command
from eso_testkit.conformance.proxy import Failure, Liar, lying
from eso_wire._generated import provider_pb2 as pb
from eso_wire.tls import load_material
from eso_wire.versions import CURRENT

# --- the lies ---------------------------------------------------------------------------------------------------------


def other_ids(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        result.item_id = f"other-{result.item_id}"


def last_dropped(answer: pb.GetSecretsResponse) -> None:
    del answer.results[-1:]


def values_trimmed(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        if result.WhichOneof("outcome") == "value":
            result.value = result.value[:-1]


def whole_value(request: pb.GetSecretsRequest) -> None:
    for item in request.items:
        item.ref.property = ""


def no_map(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        result.map.data.clear()


def everything_exists(answer: pb.CheckSecretsResponse) -> None:
    for result in answer.results:
        result.exists = True


def another_reason(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        if result.HasField("error"):
            result.error.reason = pb.ERROR_REASON_BACKEND_ERROR


def items_without_words(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        if result.HasField("error"):
            result.error.message = ""


def batch_cut(request: pb.GetSecretsRequest) -> None:
    del request.items[100:]


def ids_made_unique(request: pb.GetSecretsRequest) -> None:
    for at, item in enumerate(request.items):
        item.item_id = f"{item.item_id}-{at}"


def delete_denied(answer: pb.HandshakeResponse) -> None:
    for kind in answer.kinds:
        kind.operations.remove(pb.OPERATION_DELETE)


def lowest_version(answer: pb.HandshakeResponse) -> None:
    if answer.HasField("selected"):
        answer.selected.minor = 0


def any_version(answer: pb.HandshakeResponse) -> None:
    answer.selected.major = 9


def no_instance(answer: pb.HandshakeResponse) -> None:
    answer.instance_id = ""


def no_role(answer: pb.HandshakeResponse) -> None:
    for kind in answer.kinds:
        kind.role = pb.KIND_ROLE_UNSPECIFIED


class Restless:
    """Another instance at every handshake."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, answer: pb.HandshakeResponse) -> None:
        self._count += 1
        answer.instance_id = f"instance-{self._count}"


def never_last(page: pb.FindSecretsResponse) -> None:
    page.last = False


def found_twice(page: pb.FindSecretsResponse) -> None:
    page.found.extend(list(page.found))


def page_size_lost(request: pb.FindSecretsRequest) -> None:
    request.page_size = 0


def everything_found(request: pb.FindSecretsRequest) -> None:
    request.name_regexp = "."


def always_ready(answer: pb.ValidateResponse) -> None:
    answer.state = pb.VALIDATION_STATE_READY
    answer.ClearField("error")


def more_operations(answer: pb.ValidateResponse) -> None:
    answer.operations.extend([pb.OPERATION_GENERATE])


def always_written(request: pb.PushSecretsRequest) -> None:
    for item in request.items:
        item.precondition = pb.PUSH_PRECONDITION_NONE


def pushed_elsewhere(request: pb.PushSecretsRequest) -> None:
    for item in request.items:
        item.remote.key += "-elsewhere"


def always_created(answer: pb.PushSecretsResponse) -> None:
    for result in answer.results:
        result.outcome = pb.PUSH_OUTCOME_CREATED


def always_existed(answer: pb.DeleteSecretsResponse) -> None:
    for result in answer.results:
        result.existed = True


def nothing_deleted(request: pb.DeleteSecretsRequest) -> None:
    for item in request.items:
        item.remote.key += "-elsewhere"


def owners_ignored(request: pb.DeleteSecretsRequest | pb.PushSecretsRequest) -> None:
    for item in request.items:
        item.owner_token = "conformance-one"


def errors_as_pages(answer: pb.GetSecretsResponse) -> None:
    for result in answer.results:
        if result.HasField("error"):
            result.value = b"<html><body>404 Not Found</body></html>"


def watches_unnamed(answer: pb.SubscribeResponse) -> None:
    if answer.HasField("change"):
        del answer.change.watch_ids[:]


def acknowledgement_broken(request: pb.SubscribeRequest) -> None:
    """Turn an acknowledgement into a second open, on which the provider ends the stream."""
    if request.HasField("ack"):
        request.open.SetInParent()


class Strict:
    """No acknowledgement passes but that of a token which was given out."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def answered(self, answer: pb.SubscribeResponse) -> None:
        self._given.add(answer.resume_token)

    def asked(self, request: pb.SubscribeRequest) -> None:
        if request.HasField("ack") and request.ack.resume_token not in self._given:
            acknowledgement_broken(request)


class Repeating:
    """Wherever a stream is to go on, it begins where the first one began."""

    def __init__(self) -> None:
        self._first = ""

    def answered(self, answer: pb.SubscribeResponse) -> None:
        self._first = self._first or answer.resume_token

    def asked(self, request: pb.SubscribeRequest) -> None:
        if request.open.resume_token:
            request.open.resume_token = self._first


STRICT, REPEATING = Strict(), Repeating()


def nothing_made(answer: pb.GenerateResponse) -> None:
    answer.data.clear()


def broken_state(answer: pb.GenerateResponse) -> None:
    answer.state_json = b"state"


def repeats_request(error: Failure, request: Any) -> Failure:
    """Quote the request, as a careless message of a parser does."""
    return replace(error, details=f"{error.details}: {request.context.config.inline.spec_json.decode()}")


def repeats_credentials_in_trailers(error: Failure, request: Any) -> Failure:
    values = [one.secret_value for one in request.context.config.inline.resolved]
    return replace(error, trailers=(*error.trailers, *(("x-debug-bin", value) for value in values)))


def no_detail(error: Failure, request: Any) -> Failure:
    del request
    return replace(error, trailers=())


def no_words(error: Failure, request: Any) -> Failure:
    del request
    detail = pb.ErrorDetail(reason=pb.ERROR_REASON_UNSUPPORTED_KIND)
    status = Status(code=9)
    status.details.add().Pack(detail)
    return replace(error, trailers=(("grpc-status-details-bin", status.SerializeToString()),))


def moved_home(request: pb.GetSecretsRequest) -> None:
    context = request.context
    home = context.store.namespace
    context.caller.namespace = context.config.ref.namespace = context.auth_namespace = home


def any_protocol(request: pb.GetSecretsRequest) -> None:
    request.context.protocol.major, request.context.protocol.minor = CURRENT


def more_features(answer: pb.HandshakeResponse) -> None:
    answer.features.append("surprise")


def another_code(error: Failure, request: Any) -> Failure:
    del request
    return replace(error, code=grpc.StatusCode.UNKNOWN)


def subscribing_denied(answer: pb.HandshakeResponse) -> None:
    for kind in answer.kinds:
        kind.operations.remove(pb.OPERATION_SUBSCRIBE)


def finding_denied(answer: pb.HandshakeResponse) -> None:
    finds = {pb.OPERATION_FIND_BY_NAME, pb.OPERATION_FIND_BY_TAGS, pb.OPERATION_FIND_BY_PATH}
    for kind in answer.kinds:
        for operation in finds & set(kind.operations):
            kind.operations.remove(operation)


LIARS = [
    (
        "namespaces",
        "namespaces are not looked at",
        "is of its own namespace",
        Liar("GetSecrets", request=moved_home),
    ),
    ("errors", "every protocol", "refuses a protocol version", Liar("GetSecrets", request=any_protocol)),
    ("errors", "another code", "refuses a kind it does not serve", Liar("GetSecrets", failed=another_code)),
    (
        "errors",
        "it subscribes",
        "every operation it does not offer",
        Liar("Handshake", response=subscribing_denied),
    ),
    ("errors", "it finds", "every operation it does not offer", Liar("Handshake", response=finding_denied)),
    ("handshake", "features out of nowhere", "uses no feature", Liar("Handshake", response=more_features)),
    ("get", "other ids", "answers every item of a batch once", Liar("GetSecrets", response=other_ids)),
    (
        "get",
        "an item is left out",
        "answers every item of a batch once",
        Liar("GetSecrets", response=last_dropped),
    ),
    (
        "get",
        "values are changed",
        "gives the value of a key, byte for byte",
        Liar("GetSecrets", response=values_trimmed),
    ),
    ("get", "values are changed, again", "gives every known value", Liar("GetSecrets", response=values_trimmed)),
    ("get", "the property is ignored", "reports a missing property", Liar("GetSecrets", request=whole_value)),
    (
        "get",
        "a missing key is another error",
        "as SECRET_NOT_FOUND",
        Liar("GetSecrets", response=another_reason),
    ),
    (
        "get",
        "a missing key has no words",
        "as SECRET_NOT_FOUND",
        Liar("GetSecrets", response=items_without_words),
    ),
    (
        "get",
        "a missing property has no words",
        "a missing property",
        Liar("GetSecrets", response=items_without_words),
    ),
    (
        "get",
        "a missing version has no words",
        "a missing version",
        Liar("GetSecrets", response=items_without_words),
    ),
    (
        "get",
        "a missing version is another error",
        "a missing version",
        Liar("GetSecrets", response=another_reason),
    ),
    ("get map", "the map is empty", "gives all properties", Liar("GetSecrets", response=no_map)),
    ("exists", "everything exists", "tells what is there", Liar("CheckSecrets", response=everything_exists)),
    ("concurrency", "answers are mixed up", "each with its own answer", Liar("GetSecrets", response=other_ids)),
    (
        "robustness",
        "large batches are cut",
        "refuses a batch above its own limit",
        Liar("GetSecrets", request=batch_cut),
    ),
    (
        "robustness",
        "two items of one id",
        "refuses two items of one id",
        Liar("GetSecrets", request=ids_made_unique),
    ),
    (
        "errors",
        "it can do more than it says",
        "every operation it does not offer",
        Liar("Handshake", response=delete_denied),
    ),
    ("errors", "the request in an error", "shows no credential", Liar("GetSecrets", failed=repeats_request)),
    (
        "errors",
        "a credential in a trailer",
        "shows no credential",
        Liar("GetSecrets", failed=repeats_credentials_in_trailers),
    ),
    ("errors", "no detail", "refuses a kind it does not serve", Liar("GetSecrets", failed=no_detail)),
    ("errors", "no words", "refuses a kind it does not serve", Liar("GetSecrets", failed=no_words)),
    ("errors", "another reason for bad JSON", "is not JSON", Liar("GetSecrets", failed=no_words)),
    (
        "handshake",
        "the lowest version",
        "selects the highest version",
        Liar("Handshake", response=lowest_version),
    ),
    ("handshake", "every version", "leaves `selected` unset", Liar("Handshake", response=any_version)),
    ("handshake", "no instance", "names itself", Liar("Handshake", response=no_instance)),
    ("handshake", "another instance each time", "keeps its instance id", Liar("Handshake", response=Restless())),
    ("find", "no last page", "ends the stream with `last`", Liar("FindSecrets", response=never_last)),
    (
        "find",
        "no last page of nothing",
        "finds nothing with a pattern",
        Liar("FindSecrets", response=never_last),
    ),
    (
        "find",
        "keys are found twice",
        "gives exactly the keys that match",
        Liar("FindSecrets", response=found_twice),
    ),
    (
        "find",
        "the pattern is ignored",
        "gives exactly the keys that match",
        Liar("FindSecrets", request=everything_found),
    ),
    ("find", "the page size is ignored", "keeps to the page size", Liar("FindSecrets", request=page_size_lost)),
    (
        "validate",
        "everything is valid",
        "refuses configurations that cannot",
        Liar("Validate", response=always_ready),
    ),
    ("validate", "more is offered", "narrows operations", Liar("Validate", response=more_operations)),
    (
        "push",
        "IF_ABSENT is ignored",
        "leaves an existing value alone",
        Liar("PushSecrets", request=always_written),
    ),
    ("push", "IF_ABSENT is a race", "lets exactly one of many", Liar("PushSecrets", response=always_created)),
    (
        "push",
        "the value is not stored",
        "stores a value byte for byte",
        Liar("PushSecrets", request=pushed_elsewhere),
    ),
    ("push", "everything is new", "says whether it wrote", Liar("PushSecrets", response=always_created)),
    (
        "push",
        "a repeated push is lost",
        "under its idempotency key",
        Liar("PushSecrets", request=pushed_elsewhere),
    ),
    ("delete", "nothing is deleted", "removes what was pushed", Liar("DeleteSecrets", request=nothing_deleted)),
    (
        "delete",
        "everything existed",
        "succeeds for what is not there",
        Liar("DeleteSecrets", response=always_existed),
    ),
    (
        "ownership",
        "any owner deletes",
        "deletes nothing that another",
        Liar("DeleteSecrets", request=owners_ignored),
    ),
    (
        "ownership",
        "any owner writes",
        "overwrites nothing that another",
        Liar("PushSecrets", request=owners_ignored),
    ),
    (
        "errors",
        "error pages are values",
        "never gives an error page",
        Liar("GetSecrets", response=errors_as_pages),
    ),
    ("subscribe", "watches are not named", "tells of a change", Liar("Subscribe", response=watches_unnamed)),
    (
        "acknowledge",
        "an acknowledgement ends the stream",
        "goes on with the stream",
        Liar("Subscribe", request=acknowledgement_broken),
    ),
    (
        "acknowledge",
        "acknowledgements are taken at their word",
        "whose token it does not know",
        Liar("Subscribe", request=STRICT.asked, response=STRICT.answered),
    ),
    (
        "acknowledge",
        "streams begin anew",
        "does not repeat what was acknowledged",
        Liar("Subscribe", request=REPEATING.asked, response=REPEATING.answered),
    ),
    ("tls", "no certificate is asked for", "a client without a certificate", Liar(anybody=True)),
    ("tls", "whoever has a certificate is let in", "another identity of the same", Liar()),
]
GENERATOR_LIARS = [
    ("generate", "nothing is made", "makes values", Liar("Generate", response=nothing_made)),
    ("generate", "the state is no JSON", "gives state as JSON", Liar("Generate", response=broken_state)),
]


# --- tests ------------------------------------------------------------------------------------------------------------


def case_of(group: str, words: str) -> Case:
    (found,) = (case for case in CASES if case.group == group and words in case.sentence)
    return found


@dataclass(frozen=True, slots=True)
class Honest:
    """A provider that keeps its word."""

    provider: ProviderProcess
    made: LocalCertificates

    async def result(self, case: Case, address: str = "") -> CaseResult:
        """One case, on the first kind it is about; at the proxy's address, if one is given."""
        issuer = self.made.server.parent / "issuer"
        authority = ((issuer / "tls.crt").read_bytes(), (issuer / "tls.key").read_bytes())
        target = Target(address or self.provider.address, read_identity(self.made.client), authority=authority)
        async with channel_to(target) as channel:
            handshake = await greet(target, channel)
            known = fixtures.installed(handshake.provider_name)
            kind = kinds_for(case.profile, handshake, known)[0]
            return await attempt(case, Subject(target, channel, handshake, kind, fixture_of(kind, known)))

    async def results(self, cases: Iterable[Case], liar: Liar) -> list[CaseResult]:
        """The same through a proxy."""
        own, shown = load_material(self.made.client), load_material(self.made.server)
        async with lying(liar, self.provider.address, shown=shown, own=own) as address:
            return [await self.result(case, address) for case in cases]


@contextmanager
def honest(name: str, folder: Path) -> Iterator[Honest]:
    made = local_certificates(folder / "certificates", name)
    provider = ProviderProcess(serve_command(name), folder / "process", made.server)
    try:
        provider.start_and_wait()
        yield Honest(provider, made)
    finally:
        provider.kill()


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Honest]:
    with honest("fake", tmp_path_factory.mktemp("fake")) as one:
        yield one


@pytest.fixture(scope="module")
def generators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Honest]:
    with honest("generators", tmp_path_factory.mktemp("generators")) as one:
        yield one


async def is_caught(liar: Liar, case: Case, provider: Honest) -> None:
    without = await provider.result(case)

    (lied,) = await provider.results([case], liar)

    assert without.verdict is not Verdict.FAILED, without.why
    assert lied.verdict is Verdict.FAILED
    assert lied.why
    assert "CANARY" not in lied.why


@pytest.mark.parametrize(
    ("group", "words", "liar"), [pytest.param(group, words, liar, id=lie) for group, lie, words, liar in LIARS]
)
async def test_a_broken_promise_is_noticed(group: str, words: str, liar: Liar, fake: Honest) -> None:
    await is_caught(liar, case_of(group, words), fake)


@pytest.mark.parametrize(
    ("group", "words", "liar"),
    [pytest.param(group, words, liar, id=lie) for group, lie, words, liar in GENERATOR_LIARS],
)
async def test_a_broken_promise_of_a_generator_is_noticed(
    group: str, words: str, liar: Liar, generators: Honest
) -> None:
    await is_caught(liar, case_of(group, words), generators)


async def test_a_proxy_that_changes_nothing_is_not_blamed(fake: Honest) -> None:
    """The cases about TLS are left out: a proxy does not take part in them."""
    cases = [case for case in CASES if case.profile in (Profile.READ, Profile.WRITE, Profile.SUBSCRIBE)]

    results = await fake.results(cases, Liar())

    assert [f"{one.case}: {one.why}" for one in results if one.verdict is Verdict.FAILED] == []
