from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from eso_provider_vault.testing.openbao import OpenBao

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    """A running server, shared by all tests of a worker. Tests make mounts of their own."""
    with OpenBao.started(tmp_path_factory.mktemp("bao")) as server:
        yield server


@pytest.fixture(scope="session")
def tls_bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    """As `bao`, behind TLS with a certificate of its own authority."""
    with OpenBao.started(tmp_path_factory.mktemp("bao-tls"), tls=True) as server:
        yield server


@pytest.fixture
def mount(bao: OpenBao) -> str:
    """A fresh version 2 engine."""
    name = f"kv-{next(_NUMBERS)}"
    bao.enable(name)
    return name


@pytest.fixture
def mount_v1(bao: OpenBao) -> str:
    """A fresh version 1 engine."""
    name = f"kv1-{next(_NUMBERS)}"
    bao.enable(name, version=1)
    return name
