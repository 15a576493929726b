"""Worker processes: slow work delays no other namespace, is stopped in time, and finds no secrets in its process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from eso_api.externalsecret import Target
from eso_api.template import Template
from eso_api.values import SecretBytes
from eso_render.errors import RenderError, TargetError
from eso_render.jobs import packed, unpacked_values
from eso_render.rendering import Rendering
from eso_render.secret import Desired, render_secret
from eso_render.workers import StoppedError, Workers, WorkerSettings
from kubebase.clock import SystemClock
from kubebase.meta import ObjectMeta
from kuberun.testing.heartbeat import heartbeat

FOREVER = '{{ regexReplaceAll "(x*y|x)" .long "b" }}'
VALUES = {"long": SecretBytes(b"x" * 120_000), "short": SecretBytes(b"hunter2")}
CLOCK = SystemClock()


async def render(rendering: Rendering, template: str, share: str = "team-a") -> Desired:
    target = Target(template=Template(data={"key": template}))
    return await rendering.run(partial(render_secret, target, VALUES, owner=ObjectMeta(name="es")), share)


def inside(pid: int) -> tuple[bytes, list[str]]:
    """Return the environment and command of a process, and its open files."""
    process = Path(f"/proc/{pid}")
    texts = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    return texts, [str(file.readlink()) for file in (process / "fd").iterdir()]


def children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in listed.split()]


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(FOREVER, id="a pattern over 120 kB"),
        pytest.param('{{ randAlphaNum 4000000 | regexFind "y*z" }}', id="random text and a pattern"),
        pytest.param('{{ derivePassword 1 "long" .short .short .short }}' * 3, id="key derivation"),
        pytest.param('{{ genPrivateKey "rsa" }}', id="a private key"),
        pytest.param("{{ range until 60000 }}{{ . }}{{ end }}" * 3, id="long loops"),
    ],
)
async def test_the_event_loop_goes_on_while_something_slow_is_rendered(template: str) -> None:
    rendering = Rendering(Workers(WorkerSettings(seconds=3.0)))

    async with heartbeat() as heart:
        try:
            await render(rendering, template)
        except RenderError as error:
            assert "took longer than" in str(error)  # noqa: PT017 - some machines are quick enough

    assert heart.worst_lag < 1.0


async def test_work_that_reaches_the_deadline_is_killed_and_reported() -> None:
    rendering, before = Rendering(Workers(WorkerSettings(seconds=2.0))), set(children())

    with pytest.raises(StoppedError, match="took longer than 2 seconds and was stopped: let templates and patterns do"):
        await render(rendering, FOREVER)

    assert set(children()) <= before
    value = await render(rendering, '{{ regexReplaceAll "h.*" .short "next" }}')
    assert value.data["key"] == SecretBytes(b"next")


async def test_a_worker_that_waits_for_a_processor_is_not_stopped() -> None:
    rendering, before = Rendering(Workers(WorkerSettings(seconds=1.0))), set(children())
    await render(rendering, '{{ regexFind "h" .short }}')
    (worker,) = set(children()) - before
    os.kill(worker, signal.SIGSTOP)

    waiting = asyncio.create_task(render(rendering, '{{ regexFind "h" .short }}'))
    await CLOCK.sleep(1.5)
    os.kill(worker, signal.SIGCONT)

    assert (await waiting).data["key"] == SecretBytes(b"h")


async def test_one_namespace_leaves_a_worker_to_the_others() -> None:
    rendering = Rendering(Workers(WorkerSettings(processes=2, seconds=60.0)))
    greedy = [asyncio.create_task(render(rendering, FOREVER, "greedy")) for _ in range(2)]

    value = await render(rendering, '{{ regexFind "h" .short }}', "neighbour")

    waiting = [task for task in greedy if not task.done()]
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    assert value.data["key"] == SecretBytes(b"h")
    assert waiting == greedy


async def test_namespaces_take_turns() -> None:
    """However many jobs one namespace requests, another waits for at most one of them."""
    rendering, order = Rendering(Workers(WorkerSettings(processes=1))), list[str]()

    async def of(share: str) -> None:
        await render(rendering, '{{ regexFind "h" .short }}', share)
        order.append(share)

    async with asyncio.TaskGroup() as group:
        for share in ["greedy"] * 10 + ["neighbour"] * 2:
            group.create_task(of(share))

    assert order[:5].count("neighbour") == 2


async def test_cancelled_work_ends_and_gives_its_place_back() -> None:
    rendering, before = Rendering(Workers(WorkerSettings(processes=1, seconds=60.0))), set(children())
    slow = asyncio.create_task(render(rendering, FOREVER))
    waiting = asyncio.create_task(render(rendering, FOREVER))
    while set(children()) == before:
        await CLOCK.sleep(0.01)

    waiting.cancel()
    slow.cancel()
    await asyncio.gather(slow, waiting, return_exceptions=True)

    assert (await render(rendering, '{{ regexFind "h" .short }}')).data["key"] == SecretBytes(b"h")


@pytest.mark.parametrize(
    "template",
    [
        pytest.param('{{ regexFind "h" .short }}', id="that worked"),
        pytest.param('{{ regexFind "h" .short }}{{ fail "no" }}', id="that failed"),
    ],
)
async def test_the_values_of_work_are_not_kept(template: str) -> None:
    """A cycle would keep them until the garbage collector runs, which it seldom does in the operator."""
    rendering, size = Rendering(Workers()), 120_011
    target = Target(template=Template(data={"key": template}))
    gc.disable()
    try:
        values = {"large": SecretBytes(b"x" * size), "short": SecretBytes(b"hunter2")}
        with contextlib.suppress(RenderError):
            await rendering.run(partial(render_secret, target, values, owner=ObjectMeta(name="es")), "team")
        del values

        reader = [each for each in gc.get_objects() if isinstance(each, SecretBytes) and len(each) == size]
    finally:
        gc.enable()

    assert reader == []


async def test_a_worker_sees_nothing_of_our_environment_and_no_value_is_in_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-environment")
    rendering, before = Rendering(Workers()), set(children())

    await render(rendering, '{{ regexFind "h.*" .short }}')

    (worker,) = set(children()) - before
    seen, opened = await asyncio.to_thread(inside, worker)
    assert b"canary" not in seen
    assert b"hunter2" not in seen
    assert all(name.startswith(("socket:", "/dev/null")) for name in opened), opened
    assert len([name for name in opened if name.startswith("socket:")]) == 1


async def test_a_worker_has_only_so_much_memory() -> None:
    hungry = (
        "{{ $x := .long }}"
        + "{{ $x = list $x (print $x $x) }}" * 3
        + "{{ range until 50000 }}{{ $x = append $x (repeat 30 $.long) }}{{ end }}"
    )
    rendering = Rendering(Workers())

    with pytest.raises(RenderError, match="memory"):
        await render(rendering, hungry)

    assert (await render(rendering, '{{ regexFind "h" .short }}')).data["key"] == SecretBytes(b"h")


async def test_errors_come_back_as_they_are() -> None:
    with pytest.raises(TargetError, match="map has no entry") as caught:
        await render(Rendering(Workers()), '{{ regexFind "h" .short }}{{ .nope }}')

    assert caught.value.path.field == ("data", "key")
    assert (caught.value.phase, caught.value.line) == ("execute", 1)


PARENT = """
import asyncio, os, signal
from functools import partial
from eso_render.jobs import Job
from eso_render.rendering import Rendering
from eso_render.secret import render_pushes
from eso_render.workers import Workers
from eso_api.template import Template
from eso_api.values import SecretBytes
from eso_render.templates import TemplateObjects

async def main():
    values = {"long": SecretBytes(b"x" * 120_000)}
    template = Template(data={"key": '{{ regexReplaceAll "(x*y|x)" .long "b" }}'})
    work = partial(render_pushes, template, [values], objects=TemplateObjects())
    asyncio.get_running_loop().call_soon(tell)
    await Rendering(Workers()).run(work, "team-a")

def tell():
    worker = open(f"/proc/self/task/{os.getpid()}/children").read()
    command = open(f"/proc/{int(worker)}/cmdline").read() if worker else ""
    if "workerprocess" not in command or "prctl" in command:  # the program that binds it to us runs first
        asyncio.get_running_loop().call_later(0.05, tell)
        return
    print(worker, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_workers_end_with_their_parent_however_it_ends() -> None:
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", PARENT], capture_output=True, text=True, check=False
    )

    assert run.returncode == -signal.SIGKILL, run.stderr
    (worker,) = map(int, run.stdout.split())
    async with asyncio.timeout(30):
        while _is_running(worker):
            await CLOCK.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize("result", [Evil(), subprocess.Popen, print, Path("/")])
def test_a_result_that_could_execute_code_is_refused(result: object) -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpacked_values(pickle.dumps(result))


def test_secret_values_travel_and_stay_secret_values() -> None:
    values: Mapping[str, SecretBytes] = unpacked_values(packed({"a": SecretBytes(b"hunter2")}))

    assert values == {"a": SecretBytes(b"hunter2")}
    with pytest.raises(TypeError):
        pickle.dumps(values)
