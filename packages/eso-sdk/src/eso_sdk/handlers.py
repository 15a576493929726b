"""The calls of the protocol as gRPC handlers. Messages stay bytes here, so that malformed ones get an answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc

from eso_sdk.frame import Frame
from eso_sdk.methods import STORES, UNARY, Method


def generic_handlers(frame: Frame) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return one handler for each service."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = defaultdict(dict)
    for method in UNARY:
        services[method.service][method.name] = _unary(frame, method)
    services[STORES]["FindSecrets"] = _find(frame)
    services[STORES]["Subscribe"] = _subscribe(frame)
    return tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())


def _unary(frame: Frame, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(raw: bytes, rpc: Any) -> bytes:
        return await frame.unary(method, raw, rpc)

    return grpc.unary_unary_rpc_method_handler(handle)


def _find(frame: Frame) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(raw: bytes, rpc: Any) -> None:
        await frame.find(raw, rpc)

    return grpc.unary_stream_rpc_method_handler(handle)


def _subscribe(frame: Frame) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(incoming: AsyncIterator[bytes], rpc: Any) -> None:
        await frame.subscribe(incoming, rpc)

    return grpc.stream_stream_rpc_method_handler(handle)
