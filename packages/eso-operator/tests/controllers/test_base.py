"""The frame of a reconcile, which is the same for all kinds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from eso_operator.controllers.base import Reconciler
from eso_operator.memory import Memory, Record
from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta
from kubebase.testing.clock import START
from kuberun.cache import Cache
from kuberun.controller import Backoff, Done, ReconcileContext, Requeue, Result
from kuberun.errors import ApiError, Conflict, Forbidden, NotFound
from kuberun.watch import Applied

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = ObjectKey("team", "db")
DUE = Requeue(60.0)


class Noting(Reconciler[Object]):
    """Notes the steps that it is asked to do, in order."""

    def __init__(self, *objects: Object | Malformed) -> None:
        self.cache: Cache[Object] = Cache()
        for each in objects:
            self.cache.apply(Applied(each))
        self.memory: Memory[Record] = Memory(Record)
        self.steps: list[str] = []
        self.waiting: Result | None = None
        self.problem: ApiError | None = None
        self.unreadable: ApiError | None = None
        super().__init__(self.cache, self.memory, timed=self._measured)

    async def fresh(self, obj: Object) -> Object:
        if self.unreadable is not None:
            raise self.unreadable
        return obj

    async def hold(self, obj: Object, ctx: ReconcileContext) -> Result | None:
        del obj, ctx
        self.steps.append("hold")
        return self.waiting

    async def reconcile(self, obj: Object, ctx: ReconcileContext) -> Result:
        assert self.memory.known(KEY, obj.metadata.uid) is not None
        assert ctx.now == START
        if self.problem is not None:
            raise self.problem
        self.steps.append(f"reconcile {obj.metadata.uid}")
        return DUE

    @contextmanager
    def _measured(self, about: ObjectMeta) -> Iterator[None]:
        del about
        yield
        self.steps.append("measured")


class Finalizing(Noting):
    async def finalize(self, obj: Object, ctx: ReconcileContext) -> Result:
        del obj, ctx
        self.steps.append("finalize")
        return Done()


def obj(uid: str = "u", **metadata: str) -> Object:
    return Object(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace, uid=uid, **metadata))  # type: ignore[arg-type]  # text fields only


async def run(reconciler: Noting) -> Result:
    return await reconciler.run(KEY, ReconcileContext(START))


async def test_an_object_is_held_before_it_is_reconciled_and_measured_after_it() -> None:
    reconciler = Noting(obj())

    assert await run(reconciler) == DUE
    assert reconciler.steps == ["hold", "reconcile u", "measured"]


async def test_a_reconcile_that_waits_for_its_finalizer_ends_there() -> None:
    reconciler = Noting(obj())
    reconciler.waiting = Done()

    assert await run(reconciler) == Done()
    assert reconciler.steps == ["hold"]


@pytest.mark.parametrize("left", [None, Malformed(obj().metadata, "no spec")], ids=["deleted", "not decodable"])
async def test_an_object_that_is_gone_or_does_not_decode_is_forgotten(left: Malformed | None) -> None:
    reconciler = Noting(*([] if left is None else [left]))
    reconciler.memory.of(KEY, "u")

    assert await run(reconciler) == Done()
    assert KEY not in reconciler.memory
    assert reconciler.steps == []


async def test_an_object_that_is_being_deleted_is_finalized_and_not_held() -> None:
    reconciler = Finalizing(obj(deletion_timestamp="2026-01-01T00:00:00Z"))

    assert await run(reconciler) == Done()
    assert reconciler.steps == ["finalize"]


async def test_an_object_without_finalizer_is_reconciled_until_it_is_gone() -> None:
    reconciler = Noting(obj(deletion_timestamp="2026-01-01T00:00:00Z"))

    assert await run(reconciler) == DUE
    assert reconciler.steps == ["reconcile u", "measured"]


async def test_an_object_never_gets_the_record_of_a_former_one_of_its_name() -> None:
    reconciler = Noting(obj("second"))
    reconciler.memory.of(KEY, "first").written_on = "7"

    await run(reconciler)

    assert reconciler.memory.of(KEY, "second").written_on == ""


@pytest.mark.parametrize(
    ("problem", "result"),
    [
        pytest.param(NotFound(404, "NotFound", "no"), Done(), id="it is gone"),
        pytest.param(Conflict(409, "Conflict", "no"), Backoff("the object changed meanwhile"), id="it changed"),
        pytest.param(Forbidden(403, "Forbidden", "no"), Backoff("the API server answered Forbidden"), id="refused"),
    ],
)
@pytest.mark.parametrize("when", ["unreadable", "problem"])
async def test_an_error_of_the_api_server_becomes_a_result(problem: ApiError, result: Result, when: str) -> None:
    reconciler = Noting(obj())
    setattr(reconciler, when, problem)

    assert await run(reconciler) == result
    assert "measured" not in reconciler.steps
