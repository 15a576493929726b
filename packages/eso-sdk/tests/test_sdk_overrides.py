"""Methods of another sort than the server calls are refused when the class is defined, with a hint what to write."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Generator, Store, generator_kind, store_kind
from eso_wire.values import FindQuery, Found


class Config(Fragment, frozen=True, kw_only=True):
    """Nothing to say."""


class Storing(Store[Config]):
    """Overrides nothing."""


class Making(Generator[Config]):
    """Overrides nothing."""


def plain(*_: Any) -> Any:
    raise AssertionError("never called")


async def awaited(*_: Any) -> Any:
    raise AssertionError("never called")


async def streamed(*_: Any) -> AsyncIterator[Any]:
    yield plain()


def generated(*_: Any) -> Any:
    yield plain()


def logged(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any) -> Any:
        return method(*args)

    return wrapper


def store(**methods: Any) -> type[Store[Config]]:
    backend = type("Mine", (Storing,), {"get": awaited, **methods})
    return store_kind(kind="Mine", plural="mines")(backend)


def maker(**methods: Any) -> type[Generator[Config]]:
    backend = type("Maker", (Making,), {"generate": awaited, **methods})
    return generator_kind(kind="Maker", plural="makers")(backend)


AWAITED = ["open", "close", "validate", "get", "get_map", "get_many", "check", "push", "delete", "acknowledged"]


@pytest.mark.parametrize("method", AWAITED)
@pytest.mark.parametrize("written", [plain, streamed, generated, logged(plain), lambda *_: None])
def test_a_method_that_is_awaited_must_be_async(method: str, written: Any) -> None:
    with pytest.raises(TypeError, match=rf"Mine\.{method} must be awaitable: write `async def {method}\(self"):
        store(**{method: written})


@pytest.mark.parametrize("method", ["open", "validate", "generate", "cleanup", "cleanup_lost"])
def test_so_must_what_generators_do(method: str) -> None:
    with pytest.raises(TypeError, match=rf"Maker\.{method} must be awaitable: write `async def {method}\(self"):
        maker(**{method: plain})


@pytest.mark.parametrize("method", ["find", "subscribe"])
@pytest.mark.parametrize("written", [awaited, generated, logged(awaited)])
def test_a_method_that_streams_must_return_an_async_iterator(method: str, written: Any) -> None:
    with pytest.raises(TypeError, match=rf"Mine\.{method} must give an async iterator: write .* with `yield` in it"):
        store(**{method: written})


def test_a_method_that_admission_calls_is_not_awaited() -> None:
    with pytest.raises(TypeError, match=r"Mine\.check_config is not awaited: write `def check_config"):
        store(check_config=classmethod(awaited))


def test_an_inherited_method_counts_too() -> None:
    class Shared(Store[Config]):
        get = plain  # type: ignore[assignment]  # the mistake

    with pytest.raises(TypeError, match=r"Mine\.get must be awaitable"):
        store_kind(kind="Mine", plural="mines")(type("Mine", (Shared,), {}))


@pytest.mark.parametrize("method", AWAITED)
def test_a_wrapped_method_is_what_it_wraps(method: str) -> None:
    assert store(**{method: logged(awaited)}).OPERATIONS


class _Pages:
    """A stream that is not a generator."""

    def __aiter__(self) -> _Pages:
        return self

    async def __anext__(self) -> Found:
        return Found("key", SecretBytes(b""))


def test_a_class_with_methods_of_the_right_form_is_accepted() -> None:
    def find(self: Any, query: FindQuery) -> AsyncIterator[Found]:
        del self, query
        return _Pages()

    assert store(find=find, subscribe=streamed, check_config=classmethod(plain), own_helper=plain).OPERATIONS
    assert maker(cleanup=awaited, helper=plain).OPERATIONS
