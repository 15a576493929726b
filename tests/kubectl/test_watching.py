"""get --watch and wait."""

from __future__ import annotations

import json

import pytest

from kuberun.testing.kubectl import Kubectl, config_map, gadget

pytestmark = pytest.mark.live


def test_get_watch_prints_changes_as_they_happen(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget(size=1))
    watching = gadgets.start("get", "gadgets", "--watch")
    assert watching.stdout is not None
    lines = [watching.stdout.readline().split(), watching.stdout.readline().split()]

    gadgets("patch", "gadget", "w", "--type=merge", "--patch", '{"spec":{"size":2}}')
    lines.append(watching.stdout.readline().split())
    watching.terminate()
    watching.wait(10)
    watching.stdout.close()

    assert lines == [["NAME", "SIZE", "READY"], ["w", "1"], ["w", "2"]]


def test_get_watch_prints_whole_objects(kubectl: Kubectl) -> None:
    watching = kubectl.start("get", "secrets", "--watch", "--output", "name")
    assert watching.stdout is not None

    # The first line may only come once something happens, so writes go on until it has.
    kubectl("create", "secret", "generic", "first")
    line = watching.stdout.readline()
    watching.terminate()
    watching.wait(10)
    watching.stdout.close()

    assert line == "secret/first\n"


def test_wait_for_a_condition(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget())
    waiting = gadgets.start("wait", "gadget/w", "--for=condition=Ready", "--timeout=30s")
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    gadgets("patch", "gadget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps(status))

    assert waiting.wait(40) == 0
    assert waiting.stdout is not None
    assert "condition met" in waiting.stdout.read()
    waiting.stdout.close()


def test_wait_for_a_value(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="1"))

    assert "condition met" in kubectl("wait", "configmap/c", "--for=jsonpath={.data.a}=1", "--timeout=10s")
    assert "timed out" in kubectl.fails("wait", "configmap/c", "--for=jsonpath={.data.a}=2", "--timeout=1s")


def test_wait_for_deletion(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    waiting = kubectl.start("wait", "configmap/c", "--for=delete", "--timeout=30s")

    kubectl("delete", "configmap", "c")

    assert waiting.wait(40) == 0
    assert waiting.stdout is not None
    waiting.stdout.close()
