"""`helm test`: read the metrics, and wait until the operator has reached each provider. Standard library only."""

import json
import os
import pathlib
import ssl
import sys
import time
import urllib.request

SECONDS = float(os.environ.get("SECONDS", "60"))
ACCOUNT = pathlib.Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))


def read(url: str, trust: ssl.SSLContext, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - an address of the chart
    with urllib.request.urlopen(request, timeout=10, context=trust) as answer:  # noqa: S310 - same
        return str(answer.read().decode())


def metrics() -> str:
    """Return what is wrong. The certificate may be self-signed: nothing secret is sent or read."""
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    url = os.environ.get("METRICS")
    if url and "eso_build_info" not in read(url, anyone):
        return f"{url} serves no metrics of the operator"
    return ""


def provider(name: str) -> str:
    """Return what is wrong with the class of a provider."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    path = f"/apis/external-secrets.io/v1alpha1/namespaces/{os.environ['NAMESPACE']}/providerclasses/provider-{name}"
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    found = json.loads(read(f"https://{host}:{port}{path}", trust, (ACCOUNT / "token").read_text()))
    for condition in found.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else f"provider {name}: {condition['message']}"
    return f"provider {name}: the operator has not looked at it yet"


def problem() -> str:
    try:
        return metrics() or next(filter(None, map(provider, os.environ.get("PROVIDERS", "").split())), "")
    except OSError as error:
        return f"{getattr(error, 'url', '') or 'a connection'}: {error}"


end = time.monotonic() + SECONDS
while (complaint := problem()) and time.monotonic() < end:
    time.sleep(1)
sys.exit(complaint or 0)
