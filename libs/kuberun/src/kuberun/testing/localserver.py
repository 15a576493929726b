"""localkube as a child process. It is started by its command, not imported: the runtime depends on no server."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import urllib.request
from pathlib import Path

import yaml

from kubebase.testing.servers import Child

START_SECONDS = 60.0
CALL_SECONDS = 30.0


class LocalServer:
    """Started by its constructor. Its data is in a folder, so it survives `restart`."""

    name = "localkube"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self.kubeconfig = folder / "kubeconfig"
        self._start()
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        self.token: str = user["token"]
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(_authority(cluster))
        self._port = int(self.url.rpartition(":")[2])

    def restart(self) -> None:
        self._child.kill()
        self._start()

    def compact(self) -> None:
        request = urllib.request.Request(  # noqa: S310 - https, from the kubeconfig
            f"{self.url}/localkube/compact", method="POST", headers={"Authorization": f"Bearer {self.token}"}
        )
        tls = ssl.create_default_context(cafile=str(self.ca_file))
        urllib.request.urlopen(request, timeout=CALL_SECONDS, context=tls).close()  # noqa: S310 - same

    def stop(self) -> None:
        self._child.stop()

    def _start(self) -> None:
        ready_file = self._folder / "ready.json"
        ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "localkube", "--data-dir", str(self._folder / "data")]
        command += ["--kubeconfig", str(self.kubeconfig), "--port", str(self._port), "--ready-file", str(ready_file)]
        self._child = Child(command, self._folder / "localkube.log")
        self._child.wait_until(lambda: _is_json(ready_file), seconds=START_SECONDS)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True


def _authority(cluster: dict[str, str]) -> bytes:
    if data := cluster.get("certificate-authority-data"):
        return base64.b64decode(data)
    return Path(cluster["certificate-authority"]).read_bytes()
