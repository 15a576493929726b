"""Digests equal those of the existing operator, so that taking over a cluster rewrites nothing."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.targets.metadata import digest, metadata_digest, owner_digest, synced_version


def data(**plain: str) -> dict[str, SecretBytes]:
    return {key: SecretBytes(value.encode()) for key, value in plain.items()}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, "c461202a18e99215f121936fb2452e03843828e448a00a53f285a6fc", id="nil"),
        pytest.param(
            data(foo="value1", bar="value2"),
            "1bed8bcbcb4547ffe19a19cd47d9078e84aa6598266d86b99f992d64",
            id="data of a Secret",
        ),
        pytest.param({}, "74a974446e359fb3e6baff9bd0058950e6edd0f040888d9989b0a11b", id="no data"),
        pytest.param(data(k=""), "a921e2357fadba0d5f3e1e4fec0c73811088f841beab9554c83697ee", id="an empty value"),
        pytest.param(
            {"key1": "value1", "key2": "value2"},
            "0cf13e4753b5b20b98510b66c92f3fe461f6a88f24e700794e6b640e",
            id="data of a ConfigMap",
        ),
        pytest.param(
            {"a": "1", "b": {"c": 3, "d": [True, None, "x"]}},
            "ce34e1a9035088d2543fd3ebd6825253d998fc415de5062558817b19",
            id="a nested spec",
        ),
    ],
)
def test_a_digest_is_the_existing_operators(value: Any, expected: str) -> None:
    assert digest(value) == expected


@pytest.mark.parametrize("size", [4095, 4096, 4097, 70_000])
def test_a_large_value_is_hashed_as_a_list_of_its_bytes(size: int) -> None:
    value = bytes(number % 256 for number in range(size))
    printed = "map[k:[" + " ".join(map(str, value)) + "]]"

    assert digest({"k": SecretBytes(value)}) == hashlib.sha3_224(printed.encode()).hexdigest()


def test_the_owner_label_is_the_digest_of_the_key() -> None:
    assert owner_digest("default", "test-es") == "a8e09351ea392b727f69f63683b28619fbed1174f572e728706a9ea8"


def test_the_synced_version_is_generation_and_metadata() -> None:
    empty = "f47fe3c0b255b6dd8047cdffa772587bb829efe7a1cb70febeda2eb2"

    assert metadata_digest({}, {}) == empty
    assert synced_version(7, {}, {}) == f"7-{empty}"
    assert synced_version(7, {"a": "b"}, {}) != synced_version(7, {}, {"a": "b"})
