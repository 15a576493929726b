"""The endpoint of a service: the address from the environment, else the one that AWS publishes.

Partitions, FIPS and dual-stack endpoints are botocore's business (`AWS_USE_FIPS_ENDPOINT`,
`AWS_USE_DUALSTACK_ENDPOINT`), as are its own variables (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_STS` and so on).
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

from botocore.loaders import Loader, create_loader
from botocore.session import Session

from eso_sdk.errors import invalid_config

SECRETS_MANAGER: Final = "secretsmanager"
PARAMETER_STORE: Final = "ssm"
CERTIFICATE_MANAGER: Final = "acm"
TAGGING: Final = "resourcegroupstaggingapi"
STS: Final = "sts"
ECR: Final = "ecr"
ECR_PUBLIC: Final = "ecr-public"
SQS: Final = "sqs"

VARIABLES: Final = {
    SECRETS_MANAGER: "AWS_SECRETSMANAGER_ENDPOINT",
    PARAMETER_STORE: "AWS_SSM_ENDPOINT",
    CERTIFICATE_MANAGER: "AWS_ACM_ENDPOINT",
    TAGGING: "AWS_RESOURCE_GROUPS_TAGGING_API_ENDPOINT",
    STS: "AWS_STS_ENDPOINT",
    ECR: "AWS_ECR_ENDPOINT",
    ECR_PUBLIC: "AWS_ECR_PUBLIC_ENDPOINT",
    SQS: "AWS_SQS_ENDPOINT",
}

LOADER: Final[Loader] = create_loader()
"""Models and rules of all sessions of the process: each copy of the rules would take 7 MiB and 40 ms."""


def override_of(service: str) -> str | None:
    """Return the address from the environment for a service; None for the published one."""
    return os.environ.get(VARIABLES.get(service, "")) or None


def check_region(region: str) -> None:
    """Refuse a region that no partition of AWS can have."""
    if not any(pattern.fullmatch(region) for pattern in _regions()):
        raise invalid_config("/region", f'"{region}" is not a region of AWS; write one such as eu-west-1')


def is_published(service: str, region: str) -> bool:
    """Return whether the SDK lists the service in that region. A region newer than the SDK may still have it."""
    rules = _rules()
    return region in rules.get_available_regions(service, rules.get_partition_for_region(region))


@cache
def _regions() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of region names by partition; a small file, read once."""
    return tuple(re.compile(partition["regionRegex"]) for partition in LOADER.load_data("partitions")["partitions"])


@cache
def _rules() -> Session:
    """Return the endpoint rules of botocore. Opening a client has already loaded them, in a thread."""
    session = Session()
    session.register_component("data_loader", LOADER)
    return session
