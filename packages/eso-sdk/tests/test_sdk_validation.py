"""Invalid configurations, validations, and generators: through the frame and the codec, without sockets."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_sdk.errors import denied, invalid_config, rejected, unavailable
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, PlainMaker, Script, Scripted, ScriptedMaker
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CleanupOutcome,
    CleanupRequest,
    Context,
    GenerateRequest,
    KindId,
    KindRole,
    Operation,
    Validation,
    ValidationMode,
    ValidationState,
)


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    async with InMemory(SCRIPTED) as provider:
        yield provider


async def failure_of(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


def using(script: Script, kind: Any = Scripted, **changes: Any) -> Context:
    return call_context(kind, {"script": script.name}, **changes)


# --- configuration and validation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(b"{not json", "the configuration is no JSON object", id="no JSON"),
        pytest.param(b"\xff", "the configuration is no JSON object", id="no text"),
        pytest.param(b'{"script": 7, "x": "hunter2"}', "/script: has the wrong type", id="a wrong type"),
        pytest.param(b"{}", "/: the field script is missing", id="a missing field"),
        pytest.param(
            b'{"script": "s", "more": [{"name": "hunter2"}, {"name": ["hunter2"]}]}',
            "/more[1]/name: has the wrong type",
            id="deep inside",
        ),
    ],
)
async def test_a_bad_configuration_names_the_field_and_nothing_of_its_content(
    provider: InMemory, spec: bytes, said: str
) -> None:
    context = call_context(Scripted, spec)

    failure = await failure_of(provider.get_one(context, "a"))
    validation = await provider.validate(context)

    assert (failure.reason, failure.message) == (ErrorReason.CONFIG_INVALID, said)
    assert validation.state is ValidationState.INVALID
    assert validation.error is not None
    assert (validation.error.reason, validation.error.message) == (failure.reason, said)


async def test_a_configuration_that_was_not_sent_is_asked_for(provider: InMemory) -> None:
    context = using(Script.new())

    failure = await failure_of(provider.get_one(replace(context, config=replace(context.config, spec_json=None)), "a"))

    assert failure.reason is ErrorReason.CONFIG_NOT_FOUND
    assert "has to be sent with the call" in failure.message


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        pytest.param(KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Nope"), KindRole.STORE, id="none"),
        pytest.param(KindId("example.com", "v2alpha1", "Scripted"), KindRole.STORE, id="a kind of another group"),
        pytest.param(SCRIPTED.kind_infos[3].kind, KindRole.STORE, id="a generator, asked as a store"),
        pytest.param(SCRIPTED.kind_infos[0].kind, KindRole.GENERATOR, id="a store, asked as a generator"),
    ],
)
async def test_a_kind_that_is_not_served_is_refused(provider: InMemory, kind: KindId, role: KindRole) -> None:
    context = using(Script.new())
    other = replace(context, config=replace(context.config, kind=kind))

    call = provider.get_one(other, "a") if role is KindRole.STORE else provider.generate(other)
    failure = await failure_of(call)

    assert failure.reason is ErrorReason.UNSUPPORTED_KIND
    assert (await failure_of(provider.validate(other, role=role))).reason is ErrorReason.UNSUPPORTED_KIND


async def test_a_static_validation_opens_nothing(provider: InMemory) -> None:
    script = Script.new()

    got = await provider.validate(using(script), ValidationMode.STATIC)

    assert got.state is ValidationState.READY
    assert script.log == []


async def test_a_validation_offers_no_more_than_the_kind(provider: InMemory) -> None:
    async def validate(_: Any) -> Validation:
        narrowed = frozenset({Operation.GET, Operation.SUBSCRIBE, Operation.GENERATE})
        return Validation(ValidationState.READY, operations=narrowed)

    got = await provider.validate(using(Script.new(validate=validate)))

    assert got.operations == frozenset({Operation.GET, Operation.SUBSCRIBE})


@pytest.mark.parametrize(
    "problem",
    [rejected("bad token"), denied("everything"), invalid_config("/script", "is not welcome")],
    ids=lambda problem: problem.reason,
)
async def test_a_problem_of_the_configuration_is_the_answer(provider: InMemory, problem: ProviderError) -> None:
    async def opening(_: Any) -> None:
        raise problem

    got = await provider.validate(using(Script.new(open=opening)))

    assert got.state is ValidationState.INVALID
    assert got.error is not None
    assert (got.error.reason, got.error.message) == (problem.reason, problem.message)


async def test_not_knowing_is_an_error_of_the_call(provider: InMemory) -> None:
    async def opening(_: Any) -> None:
        raise unavailable("backend is away")

    failure = await failure_of(provider.validate(using(Script.new(open=opening))))

    assert failure.reason is ErrorReason.BACKEND_UNAVAILABLE


# --- generators ------------------------------------------------------------------------------------------------------


async def test_a_generator_makes_values_with_state_and_cleans_up_twice(provider: InMemory) -> None:
    context = using(Script.new(), ScriptedMaker)

    made = await provider.generate(context)
    assert made.state is not None
    cleaned = [await provider.cleanup(context, CleanupRequest(made.state, "key")) for _ in range(2)]

    assert made.data == {"made": SecretBytes(b"value")}
    assert cleaned == [CleanupOutcome.CLEANED, CleanupOutcome.ALREADY_GONE]


@pytest.mark.parametrize(
    ("finds", "outcome"),
    [
        pytest.param(True, CleanupOutcome.CLEANED, id="by a generator that finds it"),
        pytest.param(False, ErrorReason.UNSUPPORTED_OPERATION, id="and is refused by one that cannot find it"),
    ],
)
async def test_resources_of_an_unanswered_call_are_cleaned_up_by_the_key_of_the_call(
    provider: InMemory, finds: bool, outcome: CleanupOutcome | ErrorReason
) -> None:
    script = Script.new(finds_by_key=finds)

    try:
        ended: object = await provider.cleanup(using(script, ScriptedMaker), CleanupRequest(SecretBytes(b""), "key"))
    except ProviderError as error:
        ended = error.reason

    assert ended is outcome
    assert script.log == (["cleanup lost key"] if finds else [])


async def test_plain_bytes_of_a_generator_become_secrets(provider: InMemory) -> None:
    made = await provider.generate(using(Script.new(), PlainMaker), GenerateRequest("key"))

    assert made.data == {"key": SecretBytes(b"key")}
    assert made.state is None


async def test_a_generator_without_state_has_nothing_to_clean_up(provider: InMemory) -> None:
    request = CleanupRequest(SecretBytes(b"{}"))
    failure = await failure_of(provider.cleanup(using(Script.new(), PlainMaker), request))

    assert failure.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_a_generator_is_validated_as_one(provider: InMemory) -> None:
    got = await provider.validate(using(Script.new(), ScriptedMaker), role=KindRole.GENERATOR)

    assert got.state is ValidationState.READY
