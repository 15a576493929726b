"""`python -m localkube`: the API server as a process, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from kubebase.clock import SystemClock
from localkube.manifests import ManifestError, load
from localkube.process import Files, StartError, run
from localkube.server import LocalKube, UnsafeAddressError
from localkube.traces import log_lines_to


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if (options.data_dir is None) != options.memory:
        return _failed("give either --data-dir or --memory", 2)
    # Standard output gets the line `ready`; the log goes to standard error.
    try:
        with log_lines_to(_log, SystemClock()):
            asyncio.run(_serve(options))
    except (ManifestError, UnsafeAddressError, StartError) as problem:
        return _failed(str(problem), 1)
    return 0


async def _serve(options: argparse.Namespace) -> None:
    objects = load(options.crds)
    kube = LocalKube(
        options.data_dir, host=options.host, port=options.port, reachable_from_network=options.reachable_from_network
    )
    await run(kube, objects, Files(options.kubeconfig, options.ready_file), announce=_announce)


def _announce(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _failed(why: str, code: int) -> int:
    sys.stderr.write(f"localkube: {why}\n")
    return code


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
