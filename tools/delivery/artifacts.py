"""The files of a release, in one folder: each is made again with equal bytes from the same commit."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from delivery.checks import RefusedError, Tools
from delivery.wheels import build, epoch
from delivery.workspace import PINS, distributions, images, repository

SUMS: Final = "SHA256SUMS"
SECONDS: Final = 600
MARK: Final = "---\n"
"""What begins a document of YAML; the files have it after their comment."""


def write_all(root: Path, version: str, tools: Tools, out: Path) -> None:
    """Write wheels, sdists, charts, the CRDs, bills of materials and their checksums."""
    for old in out.glob("*"):
        old.unlink()
    build(out, ("wheel", "sdist"), root)
    write_charts(root, tools, out)
    write_crds(root, version, out)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda image: write_sbom(root, image, version, tools, out), images(distributions(root))))
    (out / SUMS).write_text("".join(checksums(out)), encoding="utf-8")


def write_crds(root: Path, version: str, out: Path) -> None:
    """Write all CRDs as one file for `kubectl apply -f`."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((root / "deploy" / "crds").glob("*.yaml"))]
    documents = [MARK + text.replace(MARK, "", 1) for text in texts]
    (out / f"external-secrets-crds-{version}.yaml").write_text("".join(documents), encoding="utf-8")


def write_charts(root: Path, tools: Tools, out: Path) -> None:
    """Package each chart with Helm, and give its files the date of the commit instead of the present time."""
    with tempfile.TemporaryDirectory() as folder:
        for chart in sorted((root / "deploy" / "charts").glob("*/Chart.yaml")):
            _run([str(tools.helm), "package", str(chart.parent), "--destination", folder], root)
        for package in sorted(Path(folder).glob("*.tgz")):
            (out / package.name).write_bytes(with_date(package.read_bytes(), int(epoch(root))))


def with_date(package: bytes, date: int) -> bytes:
    """Return a package with the same files, all of this date and without an owner."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(package)) as before,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=date) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
            member.pax_headers = {}
            after.addfile(member, before.extractfile(member))
    return packed.getvalue()


def write_sbom(root: Path, image: str, version: str, tools: Tools, out: Path) -> None:
    """Install what an image installs, and write its bill of materials (CycloneDX)."""
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        own = Path(folder) / "own.in"
        names = (root / PINS / f"{image}.own").read_text(encoding="utf-8").split()
        own.write_text("".join(f"{name}=={version}\n" for name in names), encoding="utf-8")
        uv, into = str(tools.uv), ["--quiet", "--python", str(venv)]
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], root)
        _run([uv, "pip", "install", *into, "--require-hashes", "-r", str(root / PINS / f"{image}.txt")], root)
        links = ["--no-deps", "--no-index", "--find-links", str(out)]
        _run([uv, "pip", "install", *into, *links, "-r", str(own)], root)
        sbom = out / f"{repository(image)}-{version}.cdx.json"
        command = [*tools.module("cyclonedx_py"), "environment", str(venv), "--output-reproducible"]
        _run([*command, "--output-file", str(sbom)], root, {**os.environ, "SOURCE_DATE_EPOCH": epoch(root)})


def checksums(out: Path) -> Iterator[str]:
    """Yield the lines of SHA256SUMS, as `sha256sum --check` reads them."""
    for path in sorted(out.iterdir()):
        if path.name != SUMS:
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def _run(command: list[str], root: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode:
        raise RefusedError(f"{Path(command[0]).name} failed: {done.stderr.strip() or done.stdout.strip()}")
