"""The memory of all installed providers: in one process compared with a process for each.

Processes share the pages of the interpreter and of libraries, so the proportional set size counts: each page divided by
the number of processes that map it. The providers are idle; each has certificates and listens.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from report import Row, ratio, shown

from eso_cli.providers import CLIENT_IDENTITY
from eso_sdk.installed import installed
from eso_testkit.cli.providerprocess import local_certificates
from kubebase.testing.servers import Child

SECONDS = 120.0
COMMANDS = Path(sys.executable).parent
FLAGS = ("--allowed-client", CLIENT_IDENTITY, "--listen", "127.0.0.1:0")


def measure() -> list[Row]:
    names = installed()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "tls").mkdir()
        for name in names:
            (folder / "tls" / name).symlink_to(local_certificates(folder / "made" / name, name).server)
        with ExitStack() as stack:
            apart = [
                stack.enter_context(running(folder, f"eso-provider-{name}", (), folder / "tls" / name))
                for name in names
            ]
            each = sum(map(_mebibytes, apart))
        with running(folder, "eso-providers", names, folder / "tls") as together:
            shared = _mebibytes(together)
    return [
        ratio(f"memory of {len(names)} idle providers: a process each / one process", each / shared, at_least=2),
        shown("memory of a process each, of one process: MiB", f"{each:.0f}, {shared:.0f}"),
    ]


@contextmanager
def running(folder: Path, command: str, names: Sequence[str], tls: Path) -> Iterator[int]:
    """Run a command; the block begins when it serves, with the process id."""
    ready = folder / f"{command}.json"
    files = ("--tls-dir", str(tls), "--ready-file", str(ready))
    child = Child([str(COMMANDS / command), *names, *FLAGS, *files], folder / f"{command}.log")
    try:
        child.wait_until(ready.exists, seconds=SECONDS)
        yield child.pid
    finally:
        child.stop()


def _mebibytes(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(size) for size in re.findall(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)) / 1024
