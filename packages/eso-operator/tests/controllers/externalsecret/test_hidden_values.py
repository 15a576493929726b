"""The message of an API server that rejects a target is reported without the values of the target."""

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.controllers.externalsecret.status import Failed
from eso_operator.controllers.externalsecret.sync import SyncError, write_target
from eso_operator.sources.fetch import Fetched
from eso_operator.sources.templates import TemplateReader
from eso_operator.targets.target import CreateTarget
from eso_testkit.operator.externalsecrets import external_secret
from kuberun.errors import Invalid

HUSH = "hunter2hunter2"


class Refusing:
    """A target whose server names a key that was made of a value."""

    async def plan(self, *_: object) -> CreateTarget:
        return CreateTarget({}, "")

    async def apply(self, *_: object) -> None:
        raise Invalid(422, "Invalid", f"spec.map.{HUSH}: Invalid value: it must be a text")


async def test_a_key_that_is_a_value_is_not_named() -> None:
    unused: Any = None
    target: Any = Refusing()
    fetched = Fetched(values={"password": SecretBytes(HUSH.encode())})

    with pytest.raises(SyncError) as failed:
        await write_target(external_secret(), target, fetched, templates=TemplateReader(unused, unused), former=unused)

    assert isinstance(failed.value.outcome, Failed)
    assert (
        failed.value.outcome.detail == "the API server refused: Invalid: spec.map.…: Invalid value: it must be a text"
    )
