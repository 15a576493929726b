"""Channels to Secret Manager, with the vendor's client on them. A call carries its token itself, as metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc
from google.cloud.secretmanager_v1 import SecretManagerServiceAsyncClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcAsyncIOTransport,
)
from grpc import aio

from eso_provider_gcp.endpoints import Target

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.primary_user_agent", "external-secrets"),
    ("grpc.use_local_subchannel_pool", 1),  # each identity has its own connection
)


@dataclass(frozen=True, slots=True)
class Line:
    """An open channel and its client."""

    channel: aio.Channel
    client: SecretManagerServiceAsyncClient


def opened(target: Target) -> Line:
    """Open a channel. Plain text is only for an address that the provider's environment names with http."""
    if target.secure:
        channel = aio.secure_channel(target.address, grpc.ssl_channel_credentials(), options=_OPTIONS)
    else:
        channel = aio.insecure_channel(target.address, options=_OPTIONS)
    transport = SecretManagerServiceGrpcAsyncIOTransport(channel=channel)
    return Line(channel, SecretManagerServiceAsyncClient(transport=transport))
