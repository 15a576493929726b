"""What is never written, whatever a template looked like."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from eso_api.externalsecret import SERVICE_ACCOUNT_NAME
from eso_render.denied import refuse_token
from eso_render.errors import TargetError


@pytest.mark.parametrize(
    ("type_", "annotations", "refused"),
    [
        pytest.param("kubernetes.io/service-account-token", {SERVICE_ACCOUNT_NAME: "robot"}, True, id="gets a token"),
        pytest.param("bootstrap.kubernetes.io/token", {}, True, id="lets a node in"),
        pytest.param("kubernetes.io/service-account-token", {}, False, id="of no account"),
        pytest.param("Opaque", {SERVICE_ACCOUNT_NAME: "robot"}, False, id="is no token"),
    ],
)
def test_a_rendered_secret_is_looked_at_once_more(type_: str, annotations: dict[str, str], refused: bool) -> None:
    with pytest.raises(TargetError) if refused else nullcontext():
        refuse_token(type_, annotations)
