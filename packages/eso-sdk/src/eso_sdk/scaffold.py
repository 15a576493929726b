"""`eso provider new NAME`: a working provider that passes the conformance suite, to be completed by its author."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from eso_sdk.provider import NAME_PATTERN


class ScaffoldError(ValueError):
    """No files were written; the text says why."""


def write(folder: Path, name: str) -> tuple[Path, ...]:
    """Write the distribution into a new or empty folder; return the written files."""
    if not NAME_PATTERN.fullmatch(name):
        raise ScaffoldError(
            f'"{name}" is no name for a provider: use up to 40 lower-case letters, digits and dashes, a letter first'
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldError(f"{folder} is not empty; name another folder")
    names = {
        "name": name,
        "module": f"eso_provider_{name.replace('-', '_')}",
        "kind": "".join(part.capitalize() for part in name.split("-")),
        "plural": _plural(name.replace("-", "")),
    }
    written = []
    for path, template in _FILES.items():
        target = folder / Template(path).substitute(names)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(template).substitute(names), encoding="utf-8")
        written.append(target)
    return tuple(written)


def _plural(noun: str) -> str:
    """Form the usual English plural; authors correct the exceptions in `store_kind`."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in ("", *"aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}s"


_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "eso-provider-$name"
version = "0.1.0"
description = "External Secrets provider for $name"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["eso-sdk"]

[project.optional-dependencies]
test = ["eso-sdk[testing]"]

[project.scripts]
eso-provider-$name = "$module.provider:main"

[project.entry-points."eso.providers"]
$name = "$module.provider:PROVIDER"

[project.entry-points."eso.kinds"]
$name = "$module.provider:KINDS"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]

[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
"""

_README: Final = """\
# eso-provider-$name
A provider for External Secrets. Its kinds are `$kind` and `Cluster$kind`.

    pip install -e '.[test]'
    pytest                                  the conformance suite, against a real server
    eso up --provider $name                  the operator on this machine, with this provider beside it
    eso-provider-$name --help                how it is run elsewhere

What to do next: in `src/$module/provider.py`, write the configuration that your backend needs into `${kind}Config`,
log in to the backend in `open`, and let the methods call it. Remove the methods that your backend has nothing for:
what the class overrides is what the kind offers. `tests/test_conformance.py` tells the suite what it may expect.
"""

_INIT: Final = '''\
"""The $name provider. `provider.py` holds all of it."""
'''

_PROVIDER: Final = '''\
"""The $name provider: its configuration, and what it does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from eso_sdk import (
    Check,
    DeleteItem,
    FindQuery,
    Found,
    Fragment,
    Matcher,
    Provider,
    PushItem,
    PushOutcome,
    RemoteRef,
    SecretBytes,
    SecretKeySelector,
    SourceSecret,
    Store,
    errors,
    finds,
    property_in,
    pushed_value,
    reads,
    run,
    store_kind,
)


class ${kind}Config(Fragment, frozen=True, kw_only=True):
    """How $name is reached."""

    url: str
    """Address of the backend."""
    token_secret_ref: SecretKeySelector
    """The token to log in with."""


@store_kind(kind="$kind", plural="$plural", cluster="Cluster$kind")
class $kind(Store[${kind}Config]):
    """One logged-in use of the backend. Methods run concurrently."""

    # They stand in for the backend: values by its address, and the mark of each. Replace them with calls to yours.
    backends: ClassVar[dict[str, dict[str, bytes]]] = {}
    owners: ClassVar[dict[tuple[str, str], str]] = {}

    async def open(self) -> None:
        if not self.secret(self.config.token_secret_ref):
            raise errors.rejected("the token is empty")
        self.values = self.backends.setdefault(self.config.url, {})

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        with self.observe("get"):
            if ref.version:
                raise errors.version_not_found(ref.key, ref.version)
            if ref.key not in self.values:
                raise errors.not_found(ref.key)
            return await property_in(self.values[ref.key], ref)

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        matcher = Matcher(query)
        for key, value in sorted(self.values.items()):
            if await matcher.accepts(key):
                yield Found(key, SecretBytes(value))

    async def check(self, ref: RemoteRef) -> Check:
        return Check(exists=ref.key in self.values)

    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome:
        self._check(item)
        key, value = item.remote.key, pushed_value(item)
        before = self.values.get(key)
        if before == value:
            return PushOutcome.UNCHANGED
        self.values[key] = value
        self.owners[self.config.url, key] = item.owner_token
        return PushOutcome.CREATED if before is None else PushOutcome.UPDATED

    async def delete(self, item: DeleteItem) -> bool:
        self._check(item)
        self.owners.pop((self.config.url, item.remote.key), None)
        return self.values.pop(item.remote.key, None) is not None

    def _check(self, item: PushItem | DeleteItem) -> None:
        """Refuse what this backend cannot hold, and to change a value that does not carry our mark."""
        key = item.remote.key
        if item.remote.property:
            raise errors.invalid_request(f'"{key}" holds one value; leave out the property')
        if key in self.values and self.owners.get((self.config.url, key)) != item.owner_token:
            raise errors.not_ours(key)


PROVIDER = Provider(name="$name", version="0.1.0", kinds=($kind,))
KINDS = PROVIDER.kinds_for_crds


def main() -> None:
    raise SystemExit(run(PROVIDER))
'''

_TEST: Final = '''\
"""The suite that every provider must pass, against a real server of this one."""

from collections.abc import AsyncIterator

import pytest
from $module.provider import PROVIDER

from eso_sdk.testing import Fixture, Target, conformance_server, conformance_tests, from_plain

test_conformance = conformance_tests("read", "write", "tls")


@pytest.fixture
async def conformance_target() -> AsyncIterator[Target]:
    async with conformance_server(PROVIDER) as target:
        yield target


@pytest.fixture
def conformance_fixture() -> Fixture:
    """A configuration that works. Without known values the suite pushes its own."""
    spec = {"url": "https://backend.test", "tokenSecretRef": {"name": "login", "key": "token"}}
    credentials = {"/tokenSecretRef": "a token"}
    kinds = [
        {"kind": "$kind", "spec": spec, "credentials": credentials, "invalid": [{}]},
        {"kind": "Cluster$kind", "spec": spec, "credentials": credentials, "invalid": [{}]},
    ]
    return from_plain({"kinds": kinds})
'''

_FILES: Final = {
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    "src/$module/__init__.py": _INIT,
    "src/$module/provider.py": _PROVIDER,
    "src/$module/py.typed": "",
    "tests/test_conformance.py": _TEST,
}
