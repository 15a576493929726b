"""gRPC settings of both ends. They belong together: the server must allow the keepalives that the client sends."""

from __future__ import annotations

import json

from eso_wire.bounds import MAX_MESSAGE_BYTES

Options = tuple[tuple[str, int | str], ...]

REQUEST_ID_KEY = "x-eso-request-id"
"""Metadata of every call: the request id that appears in the logs of both sides."""
TRACEPARENT_KEY = "traceparent"
"""Metadata of every call: the trace it belongs to (`trace.py`)."""
AUTHORIZATION_KEY = "authorization"
"""Metadata: `Bearer <token>` of the service account a store names for its provider channel."""

KEEPALIVE_MS = 30_000
MAX_METADATA_BYTES = 32 * 1024
MAX_CONNECTION_AGE_MS = 10 * 60_000
CONNECTION_AGE_GRACE_MS = 60_000
MAX_CONCURRENT_STREAMS = 1000

_SIZES: Options = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
)

CLIENT_OPTIONS: Options = (
    *_SIZES,
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Two channels to one address with different certificates must not share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    # The operator retries, within one policy and one deadline; gRPC's own retries would multiply the calls.
    ("grpc.enable_retries", 0),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

SERVER_OPTIONS: Options = (
    *_SIZES,
    # An established connection outlives its certificate and its CA; the maximum age limits for how long.
    ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_MS),
    ("grpc.max_connection_age_grace_ms", CONNECTION_AGE_GRACE_MS),
    ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
    # Two servers on one port would silently split the calls between an old and a new process.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
)
