"""Writes fetched values to the target: deletion policy, former targets, templates, plan, apply.

Every end is an outcome; nothing is raised to the reconciler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.controllers.due import NotDue
from eso_operator.controllers.externalsecret.cleanup import Cleanup
from eso_operator.controllers.externalsecret.outcome import (
    TEMPLATE_ERROR,
    UNKNOWN_TARGET_KIND,
    Collided,
    Failed,
    Intact,
    Outcome,
    Stalled,
    Synced,
    refused_target,
)
from eso_operator.controllers.externalsecret.reasons import DELETED, MISSING
from eso_operator.report.messages import Event
from eso_operator.report.steps import Step
from eso_operator.sources.results import Fetched, Missing
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, TemplateVersion
from eso_operator.targets.changes import Change, Create, Keep, Refuse, Untouched, Update
from eso_operator.targets.marks import OWNER, GeneratedMark, target_name
from eso_operator.targets.target import Applied, PartlyAppliedError, Target, UnknownKindError
from eso_render.errors import RenderError
from kubebase.masking import Mask
from kuberun.errors import ApiError, BadResponse, Conflict, ServerError, Unreachable
from kuberun.events import EventType

_NO_VALUES: Final[Mapping[str, SecretBytes]] = MappingProxyType({})
_DELETED: Final = "secret deleted due to DeletionPolicy=Delete"
_DATA_PATH: Final = re.compile(r"spec\.data\[(\d+)\]")


class _StepError(Exception):
    """A step failed."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class _Written(Enum):
    """Whether the target holds the new values although a step failed."""

    NO = "no"
    PERHAPS = "perhaps"
    """Yes, unless the API server rejected the write."""
    YES = "yes"


class Settlement:
    """Writes targets. The process has one."""

    def __init__(self, templates: TemplateReader, cleanup: Cleanup) -> None:
        self._templates = templates
        self._cleanup = cleanup

    async def settle(
        self, es: ExternalSecret, target: Target, fetched: Fetched, mark: GeneratedMark | None = None
    ) -> Outcome:
        """Make the target hold the values; generated ones with their mark."""
        events = tuple(map(_missing_event, fetched.missing))
        try:
            if not fetched.values and (emptied := await self._without_values(es, target)) is not None:
                outcome = emptied
            else:
                outcome = await self._with_values(es, target, fetched, mark)
        except _StepError as failed:
            outcome = failed.outcome
        if events and isinstance(outcome, Synced | Failed):
            return replace(outcome, events=(*events, *outcome.events))
        return outcome

    async def tidy(self, es: ExternalSecret, fresh: NotDue | Intact) -> Outcome:
        """Delete former targets that an interrupted process left, and correct the status; return the outcome."""
        if not self._cleanup.has_orphans(es) and not _names_another_secret(es):
            return fresh
        try:
            with _step(Step.REMOVE_FORMER):
                events, on_record = await self._cleanup.delete_orphans(es)
        except _StepError as failed:
            return failed.outcome
        return Intact(fresh.after, events, on_record)

    async def _with_values(
        self, es: ExternalSecret, target: Target, fetched: Fetched, mark: GeneratedMark | None
    ) -> Outcome:
        """Plan and apply. The former target is deleted last, so that a Secret exists at all times."""
        with _step(Step.RENDER):
            templates = await self._templates.read(es.spec.target.template, es.metadata.namespace)
            change = await target.plan(es, fetched.values, templates.objects, mark)
        try:
            return await self._applied(es, target, fetched, change=change, templates=templates.versions)
        except _StepError as failed:
            if isinstance(failed.outcome, Failed | Collided) and failed.outcome.target_written:
                return replace(failed.outcome, templates=templates.versions)
            raise

    async def _applied(
        self,
        es: ExternalSecret,
        target: Target,
        fetched: Fetched,
        *,
        change: Change,
        templates: frozenset[TemplateVersion],
    ) -> Outcome:
        synced = Synced(refresh_within=fetched.refresh_within, templates=templates)
        match change:
            case Create() | Update():
                with _step(Step.WRITE, after=_Written.PERHAPS, values=fetched.values):
                    applied = await target.apply(es, change)
                overwritten = change.overwritten if isinstance(change, Update) else None
                synced = replace(synced, events=(_written(es, applied),), changed=True, binding=_binding(es))
                synced = replace(synced, overwritten=overwritten, target_version=applied.version)
            case Keep(why=why, version=version):
                synced = replace(_kept(es, why, synced), target_version=version)
            case Refuse():
                return refused_target(change)
            case _:
                assert_never(change)
        return await self._without_orphans(es, synced)

    async def _without_values(self, es: ExternalSecret, target: Target) -> Outcome | None:
        """Apply the deletion policy if the backend has no values. Return None to continue with an empty target."""
        match es.spec.target.deletion_policy:
            case "Delete":
                if es.spec.target.creation_policy != OWNER:
                    return Stalled(Step.DELETE, "deletionPolicy Delete needs creationPolicy Owner")
                with _step(Step.DELETE):
                    deleted = await target.delete(es)
                gone = Synced(_DELETED, DELETED, (_deleted(es),) if deleted else (), changed=deleted)
                return await self._without_orphans(es, gone)
            case "Retain":
                return Synced("secret retained due to DeletionPolicy=Retain")
            case _:
                return None

    async def _without_orphans(self, es: ExternalSecret, synced: Synced) -> Synced:
        with _step(Step.REMOVE_FORMER, after=_Written.YES):
            orphans, on_record = await self._cleanup.delete_orphans(es)
        if not orphans and on_record == synced.manifests:
            return synced
        return replace(synced, events=(*synced.events, *orphans), manifests=on_record)


@contextmanager
def _step(
    step: Step, after: _Written = _Written.NO, *, values: Mapping[str, SecretBytes] = _NO_VALUES
) -> Iterator[None]:
    """Turn errors inside into an outcome that names the step.

    Templates compute keys from values, and an API server quotes invalid keys: such keys are not passed on.
    """
    try:
        yield
    except (TemplateMissingError, RenderError) as problem:
        raise _StepError(Failed(step, str(problem), TEMPLATE_ERROR)) from None
    except UnknownKindError as problem:
        raise _StepError(Failed(step, str(problem), UNKNOWN_TARGET_KIND)) from None
    except PartlyAppliedError as partly:
        raise _StepError(replace(_stopped(step, partly.problem, values), target_written=True)) from None
    except ApiError as problem:
        perhaps = after is _Written.PERHAPS and isinstance(problem, Unreachable | BadResponse | ServerError)
        written = perhaps or after is _Written.YES
        raise _StepError(replace(_stopped(step, problem, values), target_written=written)) from None


def _stopped(step: Step, problem: ApiError, values: Mapping[str, SecretBytes]) -> Collided | Failed:
    if isinstance(problem, Conflict):
        return Collided("the target changed meanwhile")
    return Failed(step, Mask(value.reveal() for value in values.values()).text(refused(problem)))


def _kept(es: ExternalSecret, why: Untouched, synced: Synced) -> Synced:
    match why:
        case Untouched.UNCHANGED:
            return replace(synced, binding=_binding(es))
        case Untouched.POLICY_NONE:
            return synced
        case Untouched.MISSING:
            return replace(synced, message=_absent_target(es), reason=MISSING)
        case _:
            assert_never(why)


def refused(problem: ApiError) -> str:
    return f"the API server refused: {problem.reason or problem.code}: {problem.message}"


def _binding(es: ExternalSecret) -> str:
    """Return the name for the binding of the status; empty if the target is not a Secret."""
    return target_name(es) if es.spec.target.manifest is None else ""


def _names_another_secret(es: ExternalSecret) -> bool:
    """Return whether the status points workloads to a Secret that is no longer the target."""
    binding = es.status.binding
    return binding is not None and binding.name not in ("", _binding(es))


def _absent_target(es: ExternalSecret) -> str:
    what = "secret" if es.spec.target.manifest is None else "resource"
    return f"{what} will not be created due to CreationPolicy=Merge"


# --- events -----------------------------------------------------------------------------------------------------------


def _written(es: ExternalSecret, applied: Applied) -> Event:
    manifest, done = es.spec.target.manifest, applied.done.name.title()
    text = applied.done.value if manifest is None else f"{done} {manifest.kind} {applied.name}"
    return Event(EventType.NORMAL, done, text)


def _deleted(es: ExternalSecret) -> Event:
    manifest = es.spec.target.manifest
    text = _DELETED if manifest is None else f"Deleted {manifest.kind} {target_name(es)}"
    return Event(EventType.NORMAL, "Deleted", text)


def _missing_event(missing: Missing) -> Event:
    """Return the event about missing values with the text that existing alerts match.

    The text says dataFrom for entries of data, too, and names the remote key for entries of data only.
    """
    if of_data := _DATA_PATH.fullmatch(missing.path):
        where = f"spec.dataFrom[{of_data[1]}] (key={missing.remote_key})"
    else:
        where = missing.path.partition("].")[0].rstrip("]") + "]"
    return Event(EventType.NORMAL, "MissingProviderSecret", f"secret does not exist at provider using {where}")
