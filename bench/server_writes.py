"""Writes per second and start-up of localkube, compared with a real kube-apiserver with etcd on the same machine."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from load import through_bare_loop
from report import Row, ratio, shown

from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.localserver import LocalServer

S = TypeVar("S", bound=ApiServer)
ROUNDS = 5
WRITES = 1500


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        local, local_start = _started(lambda: LocalServer(_made(Path(folder) / "local")))
        rows = [shown("localkube: seconds from start to ready", f"{local_start:.2f}")]
        try:
            try:
                assets = find_assets()
            except ServerFailedError:
                return [*rows, shown("kube-apiserver", "not built: run `make test-cluster` once")]
            kube, kube_start = _started(lambda: KubeApiserver(_made(Path(folder) / "kube"), assets))
            try:
                rows.append(ratio("localkube start to ready / kube-apiserver", local_start / kube_start))
                return rows + asyncio.run(_compare(local, kube))
            finally:
                kube.stop()
        finally:
            local.stop()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _started(start: Callable[[], S]) -> tuple[S, float]:
    before = time.perf_counter()
    return start(), time.perf_counter() - before


async def _compare(local: ApiServer, kube: ApiServer) -> list[Row]:
    ratios: list[float] = []
    for number in range(ROUNDS):
        theirs = await through_bare_loop(kube, f"round-{number}", WRITES)
        ours = await through_bare_loop(local, f"round-{number}", WRITES)
        ratios.append(ours.per_second / theirs.per_second)
    return [ratio("localkube writes per second / kube-apiserver", statistics.median(ratios), at_least=1.0)]
