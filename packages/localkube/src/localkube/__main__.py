"""`python -m localkube`: the API server as a process, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
from pathlib import Path
from typing import Final

from localkube.access.files import write_private
from localkube.errors import StatusError
from localkube.manifests import ManifestError, install, load
from localkube.server import LocalKube, UnsafeAddressError
from localkube.storage import StorageError

_GENERATIONS: Final = (50_000, 20, 50)
"""Collector thresholds: the server keeps many small objects alive and makes few cycles."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if (options.data_dir is None) != options.memory:
        sys.stderr.write("localkube: give either --data-dir or --memory\n")
        return 2
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)
    try:
        asyncio.run(_serve(options))
    except (ManifestError, UnsafeAddressError, StorageError, OSError) as problem:
        sys.stderr.write(f"localkube: {problem}\n")
        return 1
    except StatusError as problem:
        sys.stderr.write(f"localkube: a manifest was refused: {problem.message}\n")
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    manifests = load(options.crds)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    kube = LocalKube(
        options.data_dir, host=options.host, port=options.port, reachable_from_network=options.reachable_from_network
    )
    async with kube:
        await install(kube.cluster, manifests)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GENERATIONS)
        kubeconfig = options.kubeconfig.absolute()
        write_private(kubeconfig, kube.kubeconfig_text.encode())
        sys.stdout.write(f"ready {kubeconfig}\n")
        sys.stdout.flush()
        if options.ready_file is not None:
            ready = {"kubeconfig": str(kubeconfig), "server": kube.url}
            write_private(options.ready_file, json.dumps(ready).encode())
        await stop.wait()
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localkube", description="A Kubernetes API server in one process.")
    parser.add_argument("--data-dir", type=Path, help="where objects, keys and certificates are kept")
    parser.add_argument("--memory", action="store_true", help="keep objects in memory only")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig to write (mode 0600)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on")
    parser.add_argument("--reachable-from-network", action="store_true", help="allow an address that is not loopback")
    parser.add_argument("--ready-file", type=Path, help="JSON file to write once the server answers")
    parser.add_argument(
        "--crds", type=Path, nargs="+", default=[], help="files or directories with objects to apply at the start"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
