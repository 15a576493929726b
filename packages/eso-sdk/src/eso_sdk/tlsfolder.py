"""Certificates in a folder, as mounted from a Secret: read when they change, and awaited at the start.

The operator issues a provider's certificates, usually after its pod has started. So the server first waits for missing
certificates, and fails only after that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from eso_wire.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsMaterial, TlsMaterialError, load_material
from kubebase.clock import Clock

_FILES: Final = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
_POLL_SECONDS: Final = 0.5

_log = structlog.get_logger("eso_sdk.tlsfolder")

Stamp = tuple[tuple[int, int, int], ...]


class TlsFolder:
    """The source of a server's certificates. gRPC asks at every handshake, from its own threads."""

    def __init__(self, folder: Path, on_reload: Callable[[str], None] = lambda _result: None) -> None:
        self._folder = folder
        self._on_reload = on_reload
        self._lock = threading.Lock()
        self._stamp: Stamp = ()
        self._material: TlsMaterial | None = None

    def __call__(self) -> TlsMaterial:
        """Return the current certificates, or the last good set while a new one is being written."""
        with self._lock:
            stamp = self._stamped()
            if self._material is None or stamp != self._stamp:
                self._stamp = stamp
                self._load()
            if self._material is None:
                raise TlsMaterialError(f"no usable certificates in {self._folder}")
            return self._material

    def _load(self) -> None:
        try:
            fresh = load_material(self._folder)
        except TlsMaterialError:
            if self._material is None:
                raise
            self._on_reload("failure")
            return
        if self._material is not None:
            self._on_reload("success")
        self._material = fresh

    def _stamped(self) -> Stamp:
        """Return a stamp that changes with the files, also behind the symbolic links of a mounted Secret."""
        stamps = []
        for name in _FILES:
            try:
                status = (self._folder / name).stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)


async def wait_for_certificates(source: TlsFolder, clock: Clock, seconds: float) -> TlsMaterial:
    """Wait for the first usable set; after that time raise TlsMaterialError with the reason."""
    until = clock.monotonic() + seconds
    logged = False
    while True:
        try:
            return source()
        except TlsMaterialError as exc:
            if clock.monotonic() >= until:
                raise
            if not logged:
                logged = True
                _log.info("waiting for certificates", problem=str(exc), seconds=seconds)
        await clock.sleep(_POLL_SECONDS)
