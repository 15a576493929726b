"""Recordings: answers are replayed without a provider, the file holds no value, and a bad file says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eso_api.values import SecretBytes
from eso_operator.providers.channels import CallOptions
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_testkit.operator.scriptedprovider import LoopbackTransport, ScriptedProvider
from eso_tools.plan import recording
from eso_tools.plan.objects import masked
from eso_tools.plan.recording import Recording, RecordingError
from eso_tools.plan.replay import Recorder, RecordingTransport, Replay, ReplayingTransport
from eso_tools.plan.standins import StandIns
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, GenerateRequest, GetItem, RemoteRef, Shape, ValidationState
from kubebase.testing.clock import VirtualClock

CANARY = b"CANARY-value-9d2c"
SPEC = b'{"url": "https://backend.example", "value": "CANARY-inline-1f"}'


class Pair:
    """A gateway that records, and one that replays what was recorded."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.provider = ScriptedProvider(clock, data={"a": CANARY, "b": b'{"port": 5432}'})
        self.recorder = Recorder(Recording(), StandIns())
        recorded = LoopbackGateway(
            clock, self.provider, through=lambda plain: RecordingTransport(plain, endpoint(), self.recorder)
        )
        self.gateway = recorded.gateway

    def replayed(self, path: Path) -> LoopbackGateway:
        """Return a gateway over the written and read recording; no provider is reached."""
        recording.write(self.recorder.finish(), path)
        replay = Replay.of(recording.read(path), lambda _name: False)
        unused = ScriptedProvider(VirtualClock())
        return LoopbackGateway(VirtualClock(), unused, through=lambda _plain: ReplayingTransport(endpoint(), replay))


def revealed(value: object) -> bytes:
    assert isinstance(value, SecretBytes)
    return value.reveal()


async def test_every_read_is_replayed_with_stand_ins(tmp_path: Path) -> None:
    pair, bound = Pair(), bound_store(spec=SPEC)
    items = [*wanted("a", "b", "missing"), GetItem("map", RemoteRef("a"), Shape.MAP)]
    await pair.gateway.handshake(endpoint(), bound.resolved.tls)
    await pair.gateway.validate(bound)
    await pair.gateway.get(bound, items)
    await pair.gateway.check(bound, wanted("a", "missing"))
    await pair.gateway.find(bound, FindQuery(name_regexp=".*"))
    await pair.gateway.generate(bound, GenerateRequest())

    file = tmp_path / "recording.json"
    gateway = pair.replayed(file).gateway

    assert (await gateway.handshake(endpoint(), bound.resolved.tls)).provider_name == "scripted"
    assert (await gateway.validate(bound)).state is ValidationState.READY
    first, second, missing, whole = (each.outcome for each in await gateway.get(bound, items))
    assert revealed(first).startswith(b"standin-")
    assert list(json.loads(revealed(second))) == ["port"]
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    assert isinstance(whole, dict)
    assert revealed(whole["value"]) == revealed(first)
    assert [each.exists for each in await gateway.check(bound, wanted("a", "missing"))] == [True, False]
    found = (await gateway.find(bound, FindQuery(name_regexp=".*"))).found
    assert {each.key: each.value.reveal() for each in found} == {"a": revealed(first), "b": revealed(second)}
    assert list((await gateway.generate(bound, GenerateRequest())).data) == ["password"]
    assert b"CANARY" not in file.read_bytes()
    assert b"generated" not in file.read_bytes()


async def test_a_question_without_a_recorded_answer_names_store_and_key(tmp_path: Path) -> None:
    pair, bound = Pair(), bound_store()
    await pair.gateway.get(bound, wanted("a"))

    (result,) = await pair.replayed(tmp_path / "file").gateway.get(bound, wanted("b"))

    assert isinstance(result.outcome, ProviderError)
    assert result.outcome.message.startswith('the recording does not contain key "b" of SecretStore')
    assert "team/store" in result.outcome.message


async def test_an_answer_counts_only_for_the_same_configuration(tmp_path: Path) -> None:
    pair = Pair()
    await pair.gateway.get(bound_store(spec=b'{"a": 1, "b": 2}'), wanted("a"))
    gateway = pair.replayed(tmp_path / "file").gateway

    (alike,) = await gateway.get(bound_store(spec=b'{"b": 2, "a": 1}'), wanted("a"))
    (other,) = await gateway.get(bound_store(spec=b'{"a": 1, "b": 3}'), wanted("a"))

    assert isinstance(alike.outcome, SecretBytes)
    assert isinstance(other.outcome, ProviderError)
    assert "the present configuration" in other.outcome.message


async def test_an_error_of_a_call_is_recorded_without_credentials(tmp_path: Path) -> None:
    pair, bound = Pair(), bound_store(credential=CANARY)
    pair.provider.broken = ProviderError(ErrorReason.CREDENTIALS_REJECTED, f"{CANARY.decode()} was refused")
    with pytest.raises(ProviderError):
        await pair.gateway.get(bound, wanted("a"))

    file = tmp_path / "file"
    (result,) = await pair.replayed(file).gateway.get(bound, wanted("a"))

    assert isinstance(result.outcome, ProviderError)
    assert result.outcome.reason is ErrorReason.CREDENTIALS_REJECTED
    assert CANARY not in file.read_bytes()


async def test_an_edited_answer_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    pair, bound = Pair(), bound_store()
    await pair.gateway.validate(bound)
    file = tmp_path / "file"
    pair.replayed(file)
    edited = json.loads(file.read_text())
    edited["answers"][0]["answer"] = {"no": "such field"}
    file.write_text(json.dumps(edited))
    transport = ReplayingTransport(endpoint(), Replay.of(recording.read(file), lambda _name: False))
    gateway = LoopbackGateway(
        VirtualClock(), ScriptedProvider(VirtualClock()), through=lambda _plain: transport
    ).gateway

    with pytest.raises(ProviderError, match="malformed"):
        await gateway.validate(bound)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", "not a recording of eso plan", id="empty"),
        pytest.param(b"{}", "not a recording of eso plan", id="without a version"),
        pytest.param(b'{"version": 99}', "version 99 of the recording is not supported", id="of a later version"),
        pytest.param(b'{"version": 1, "answers": 5}', "not a recording of eso plan", id="of another shape"),
    ],
)
def test_a_file_that_is_not_a_recording_says_what_to_do(content: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    with pytest.raises(RecordingError, match=f"{complaint}.*--record"):
        recording.read(file)


def test_a_recording_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 1024)
    file = tmp_path / "file"
    file.write_bytes(b" " * 1025)

    with pytest.raises(RecordingError, match="so it is not a recording"):
        recording.read(file)
    with pytest.raises(RecordingError, match="plan fewer manifests"):
        recording.write(Recording(reads=["x" * 2048]), file)


def test_a_recorded_secret_keeps_names_and_hides_values() -> None:
    metadata = {
        "name": "db",
        "namespace": "app",
        "labels": {"app": "shop"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": CANARY.decode(),
            "templated": CANARY.decode(),
            "reconcile.external-secrets.io/data-hash": "of the data",
        },
    }
    data = {"password": "Q0FOQVJZLXZhbHVlLTlkMmM="}

    found = masked({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, StandIns())

    assert list(found["data"]) == ["password"]
    assert found["metadata"]["labels"] == {"app": "shop"}
    assert set(found["metadata"]["annotations"]) == {"templated", "reconcile.external-secrets.io/data-hash"}
    assert found["metadata"]["annotations"]["reconcile.external-secrets.io/data-hash"] != "of the data"
    assert CANARY.decode() not in json.dumps(found)
    assert data["password"] not in json.dumps(found)


async def test_a_transport_that_replays_opens_no_stream() -> None:
    replay = Replay.of(Recording(), lambda _name: False)
    options = CallOptions(timeout=1.0, connect_timeout=1.0)

    for transport in (
        ReplayingTransport(endpoint(), replay),
        RecordingTransport(
            LoopbackTransport(ScriptedProvider(VirtualClock())), endpoint(), Recorder(Recording(), StandIns())
        ),
    ):
        with pytest.raises(ProviderError):
            await transport.duplex("Subscribe", options)
