"""The kubelet of tests: runs the containers of a Deployment as local processes, because a test cluster has no nodes.

    pod = Kubelet(server, kubectl, folder).pod("external-secrets")
    pod.start("--one-more-flag=x")
    pod.wait_until_ready()

A container has the flags, environment, account and volumes of its Deployment, with three differences: paths in flags
lead to local copies of the volumes, each port is a free one of this machine on loopback, and no flag is in the image.
The program has the name of the image. Whatever a pod may have besides ends in an error, so that nothing is left out.
"""

from __future__ import annotations

import base64
import re
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.servers import (
    ApiServer,
    Child,
    ServerFailedError,
    find_program,
    free_ports,
    kubeconfig_text,
)
from kuberun.testing.kubectl import Kubectl

START_SECONDS: Final = 120.0
VOLUME_SECONDS: Final = 60.0
PROBE_SECONDS: Final = 5.0
_LISTENS: Final = re.compile(r"(--[\w-]+=)(?:0\.0\.0\.0|127\.0\.0\.1)?:(\d+)")
_HIDDEN: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@dataclass(frozen=True, slots=True)
class Kubelet:
    """Runs pods of one namespace, which is that of kubectl."""

    server: ApiServer
    kubectl: Kubectl
    folder: Path

    def pod(self, deployment: str) -> Pod:
        """Return the pod of a Deployment, which is not yet started; its ports are known."""
        template = self.kubectl.json("get", "deployment", deployment)["spec"]["template"]
        spec = template["spec"]
        if extra := [key for key in ("initContainers", "hostAliases", "hostNetwork") if spec.get(key)]:
            raise ServerFailedError(f"this kubelet knows no {', '.join(extra)}")
        listens = {
            found[2] for each in spec["containers"] for arg in each["args"] if (found := _LISTENS.fullmatch(arg))
        }
        ports = dict(zip(sorted(listens), free_ports(len(listens)), strict=True))
        home = self.folder / deployment
        home.mkdir()
        return Pod(self, deployment, spec, home, ports)


@dataclass(slots=True)
class Pod:
    """One pod: `ports` are those of this machine, by the port in the pod."""

    kubelet: Kubelet
    name: str
    spec: JsonObject
    home: Path
    ports: dict[str, int]
    children: dict[str, Child] = field(default_factory=dict)

    def address(self, port: str) -> str:
        """Return where a named port is reached."""
        (number,) = (
            each["containerPort"] for one in self.spec["containers"] for each in one["ports"] if each["name"] == port
        )
        return f"127.0.0.1:{self.ports[str(number)]}"

    def start(self, *more: str) -> None:
        """Start every container; `more` follows the flags of the Deployment."""
        volumes = {each["name"]: self._volume(each) for each in self.spec.get("volumes", ())}
        for container in self.spec["containers"]:
            program = container["image"].rpartition("/")[2].partition(":")[0]
            command = find_program(program)
            if command is None:
                raise ServerFailedError(f"no program {program} for the image {container['image']}")
            mounts = {each["mountPath"]: volumes[each["name"]] for each in container.get("volumeMounts", ())}
            flags = [self._local(flag, mounts) for flag in container["args"]]
            environment = {**dict.fromkeys(_HIDDEN, ""), **self._environment(container), **self._account()}
            self.children[container["name"]] = Child(
                [str(command), *flags, *more], self.home / f"{container['name']}.log", environment
            )

    def wait_until_ready(self) -> None:
        """Ask as the readiness probes of the containers do."""
        for container in self.spec["containers"]:
            probe = container["readinessProbe"]["httpGet"]
            url = f"http://{self.address(probe['port'])}{probe['path']}"
            self.children[container["name"]].wait_until(lambda url=url: _answers(url), seconds=START_SECONDS)  # type: ignore[misc]  # bound per turn

    @property
    def log(self) -> str:
        return "".join(file.read_text(errors="replace") for file in sorted(self.home.glob("*.log")))

    def stop(self) -> None:
        for child in self.children.values():
            child.stop()

    def _local(self, flag: str, mounts: dict[str, Path]) -> str:
        if listens := _LISTENS.fullmatch(flag):
            return f"{listens[1]}127.0.0.1:{self.ports[listens[2]]}"
        name, equals, value = flag.partition("=")
        for path, folder in mounts.items():
            if value == path or value.startswith(f"{path}/"):
                return f"{name}{equals}{folder}{value.removeprefix(path)}"
        return flag

    def _environment(self, container: JsonObject) -> dict[str, str]:
        known = {"spec.serviceAccountName": self._account_name, "metadata.namespace": self.kubelet.kubectl.namespace}
        return {
            each["name"]: each["value"] if "value" in each else known[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container.get("env", ())
        }

    @property
    def _account_name(self) -> str:
        return str(self.spec.get("serviceAccountName", "default"))

    def _account(self) -> dict[str, str]:
        """Return the environment with a token of the pod's account, or with none if none is mounted."""
        if not self.spec.get("automountServiceAccountToken", True):
            return {}
        token = self.kubelet.kubectl("create", "token", self._account_name, "--duration=1h").strip()
        file = self.home / "kubeconfig"
        file.write_text(kubeconfig_text(self.kubelet.server.url, self.kubelet.server.ca_file.read_bytes(), token))
        file.chmod(0o600)
        return {"KUBECONFIG": str(file)}

    def _volume(self, volume: JsonObject) -> Path:
        """Return a folder with the content of a Secret, once there is one: pods wait for their volumes."""
        folder: Path = self.home / volume["name"]
        if set(volume) == {"name", "emptyDir"}:
            folder.mkdir()
            return folder
        name, clock = volume["secret"]["secretName"], SystemClock()
        end = clock.monotonic() + VOLUME_SECONDS
        while (found := self.kubelet.kubectl.run("get", "secret", name)).returncode:
            if clock.monotonic() > end:
                raise ServerFailedError(f"{self.name} waits for a volume: {found.stderr}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for key, value in self.kubelet.kubectl.json("get", "secret", name)["data"].items():
            (folder / key).write_bytes(base64.b64decode(value))
        return folder


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as response:  # noqa: S310 - loopback
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
