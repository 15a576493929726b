"""The user's identity and rights."""

from __future__ import annotations

import time

import pytest

from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.live


def test_whoami(kubectl: Kubectl) -> None:
    groups = kubectl.json("auth", "whoami")["status"]["userInfo"]["groups"]

    assert {"system:masters", "system:authenticated"} <= set(groups)


def test_can_i_follows_roles_and_bindings(kubectl: Kubectl) -> None:
    account = f"system:serviceaccount:{kubectl.namespace}:reader"
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    before = kubectl.run("auth", "can-i", "list", "configmaps", "--as", account)

    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kubectl.namespace}:reader")
    deadline = time.monotonic() + 20
    while kubectl.run("auth", "can-i", "list", "configmaps", "--as", account).returncode:
        assert time.monotonic() < deadline, "the binding never takes effect"

    assert (before.returncode, before.stdout) == (1, "no\n")
    assert kubectl.run("auth", "can-i", "list", "secrets", "--as", account).stdout == "no\n"
    assert kubectl("auth", "can-i", "*", "*") == "yes\n"
    assert "configmaps" in kubectl("auth", "can-i", "--list", "--as", account)


def test_a_token_of_a_service_account_acts_within_its_roles(kubectl: Kubectl) -> None:
    account = f"system:serviceaccount:{kubectl.namespace}:robot"
    kubectl("create", "serviceaccount", "robot")
    kubectl(
        "create", "rolebinding", "robot", "--clusterrole=cluster-admin", f"--serviceaccount={kubectl.namespace}:robot"
    )
    token = kubectl("create", "token", "robot").strip()

    who = kubectl.json("--token", token, "auth", "whoami")["status"]["userInfo"]["username"]
    refused = kubectl.fails("--token", token, "get", "secrets", "--namespace", "kube-system")

    assert who == account
    assert f'User "{account}" cannot list resource "secrets" in API group "" in the namespace "kube-system"' in refused
    assert kubectl("--token", token, "get", "secrets", "--output", "name") == ""


def test_a_wrong_token_is_unauthorized(kubectl: Kubectl) -> None:
    assert "You must be logged in to the server" in kubectl.fails("--token", "wrong", "get", "secrets")


def test_a_token_for_a_while_and_an_audience(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")

    request = kubectl.json("create", "token", "robot", "--audience=vault", "--duration=20m")

    assert request["spec"]["audiences"] == ["vault"]
    assert request["spec"]["expirationSeconds"] == 1200
