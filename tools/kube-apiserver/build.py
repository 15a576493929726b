"""Build a real kube-apiserver and Helm for `make test-cluster`, once, into a cache outside the checkout.

Each go.mod beside this script (and one folder below) pins one Kubernetes release, that in tools/helm a release of Helm;
the tools it names are what gets built. Standard output carries only the answer (versions, or the folder with the
binaries); progress goes to stderr.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPONENTS = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "etcd": "go.etcd.io/etcd/server/v3",
}
HELM = HERE.parent / "helm"
HELM_PACKAGE = "helm.sh/helm/v3/cmd/helm"
PROGRESS_SECONDS = 15.0
COUNTS = {"newest": 1, "all": None}
"""How many releases are tested, by the value of KUBE_VERSIONS; without a value, two."""


class CannotBuildError(Exception):
    """The message says what is missing and what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--versions", action="store_true", help="print the versions to test, newest first")
    what.add_argument("--helm", action="store_true", help="build Helm; prints the binary")
    what.add_argument("version", nargs="?", help="a version to build; prints the folder that holds the binaries")
    arguments = parser.parse_args()
    try:
        if arguments.versions:
            answer = versions_to_test()
        else:
            answer = [str(helm() if arguments.helm else assets(arguments.version))]
    except CannotBuildError as failure:
        print(f"build.py: {failure}", file=sys.stderr)
        return 1
    print("\n".join(answer))
    return 0


def versions_to_test() -> list[str]:
    """Return the two newest pinned releases, the newest first.

    Return all of them if KUBE_VERSIONS=all, one if KUBE_VERSIONS=newest, the given binary's if KUBEBUILDER_ASSETS is
    set.
    """
    if given := given_assets():
        return [version_of(given / "kube-apiserver")]
    return list(modules())[: COUNTS.get(os.environ.get("KUBE_VERSIONS", ""), 2)]


def assets(version: str) -> Path:
    if given := given_assets():
        return given
    module = modules().get(version)
    if module is None:
        raise CannotBuildError(f"no go.mod pins Kubernetes {version}; known: {', '.join(modules())}")
    major, minor, _ = version.split(".", 2)
    stamp = "k8s.io/component-base/version"
    stamps = f"-X {stamp}.gitVersion=v{version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    return built(module, f"kubernetes-{version}", COMPONENTS, stamps)


def helm() -> Path:
    pins = (HELM / "go.mod").read_text()
    release = re.search(r"helm\.sh/helm/v3 v([0-9.]+)", pins)
    client = re.search(r"k8s\.io/client-go v0\.([0-9]+)", pins)
    if release is None or client is None:
        raise CannotBuildError(f"{HELM / 'go.mod'} pins no release of helm.sh/helm/v3, or no k8s.io/client-go")
    version = release.group(1)
    # Without a cluster, `helm template` and `helm lint` take the Kubernetes version from here.
    minor = client.group(1)
    places = ("pkg/chartutil", "pkg/lint/rules")
    known = [
        f"-X helm.sh/helm/v3/{each}.k8sVersionMajor=1 -X helm.sh/helm/v3/{each}.k8sVersionMinor={minor}"
        for each in places
    ]
    stamps = " ".join([f"-X helm.sh/helm/v3/internal/version.version=v{version}", *known])
    return built(HELM, f"helm-{version}", {"helm": HELM_PACKAGE}, stamps) / "helm"


def built(module: Path, release: str, components: dict[str, str], stamps: str) -> Path:
    """Return the folder of the cache for a release, with the components in it."""
    folder = cache() / release
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        missing = {name: package for name, package in components.items() if not (folder / name).is_file()}
        if missing:
            build(module, missing, folder, stamps)
    return folder


def given_assets() -> Path | None:
    value = os.environ.get("KUBEBUILDER_ASSETS")
    if not value:
        return None
    if not (Path(value) / "kube-apiserver").is_file():
        raise CannotBuildError(f"KUBEBUILDER_ASSETS={value} holds no kube-apiserver; unset it to build one")
    return Path(value)


def version_of(binary: Path) -> str:
    said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return said.strip().removeprefix("Kubernetes v")


def modules() -> dict[str, Path]:
    """Return the folder of the go.mod for each pinned version, newest first."""
    found = {}
    for file in [HERE / "go.mod", *HERE.glob("*/go.mod")]:
        pinned = re.search(r"k8s\.io/kubernetes v([0-9.]+)", file.read_text())
        if pinned:
            found[pinned.group(1)] = file.parent
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")], reverse=True))


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eso-testbin"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the cache. Two checkouts may share it: the second waits, then finds the binaries."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(module: Path, components: dict[str, str], folder: Path, stamps: str) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError(
            f"no Go toolchain on PATH, and no {' or '.join(components)} in {folder}. Install Go (https://go.dev/dl), "
            "or set KUBEBUILDER_ASSETS to a folder with kube-apiserver. `make test` needs neither."
        )
    for name, package in components.items():
        total = len(run([go, "list", "-deps", package], module, f"reading the sources of {name} for {folder.name}"))
        # A temporary folder on the same file system, so that a binary appears whole or not at all.
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            binary = Path(fresh) / name
            flags = f"-s -w {stamps}"
            command = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(binary), package]
            run(command, module, f"building {name} for {folder.name}", total=total)
            binary.rename(folder / name)


def run(command: list[str], module: Path, doing: str, total: int = 0) -> list[str]:
    """Run Go in the folder of a go.mod, report progress, and return the lines it printed."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    began = reported = time.monotonic()
    say(f"{doing} (minutes the first time)")
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=module, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                count = f"{len(lines)} of at most {total} packages" if total else f"{len(lines)} steps"
                say(f"{doing}: {count}, {reported - began:.0f} s")
    if process.returncode != 0:
        raise CannotBuildError("\n".join([f"{doing} failed:", *lines[-20:]]))
    say(f"{doing}: done after {time.monotonic() - began:.0f} s")
    return lines


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
