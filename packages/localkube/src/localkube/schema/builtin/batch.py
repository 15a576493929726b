"""batch/v1: jobs as stored objects. Nothing runs them here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kuberun.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes, metadata
from localkube.schema.builtin import pods
from localkube.schema.builtin.kinds import age_column, at, builtin_kind, column
from localkube.schema.builtin.parts import (
    LABEL_SELECTOR,
    OBJECT_REFERENCE,
    anything,
    boolean,
    conditions,
    described,
    integer,
    items,
    struct,
    text,
    time,
)

_BATCH: Final = "io.k8s.api.batch.v1"
_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"


def batch_kinds() -> list[ServedKind]:
    return [_job(), _cron_job()]


def _job() -> ServedKind:
    status = struct(
        f"{_BATCH}.JobStatus",
        "State of a job.",
        {
            "active": integer("Running pods."),
            "succeeded": integer("Pods that succeeded."),
            "failed": integer("Pods that failed."),
            "startTime": time("When the job started."),
            "completionTime": time("When the job succeeded."),
            "conditions": conditions(f"{_BATCH}.JobCondition"),
        },
        preserve_unknown_fields=True,
    )
    return builtin_kind(
        Resource("batch", "v1", "jobs", "Job"),
        f"{_BATCH}.Job",
        "Runs pods until a number of them succeeded.",
        {"spec": _job_spec(), "status": status},
        prepare=_prepare_job,
        categories=("all",),
        subresources=frozenset({"status"}),
        columns=(
            column("Status", _job_status),
            column("Completions", lambda obj: f"{at('status.succeeded', 0)(obj)}/{at('spec.completions', 1)(obj)}"),
            column("Duration", lambda _obj: ""),
            age_column(),
            *_template_columns("spec.template"),
            column("Selector", _selector, priority=1),
        ),
        selectable={"status.successful": "status.succeeded"},
    )


def _cron_job() -> ServedKind:
    template = struct(
        f"{_BATCH}.JobTemplateSpec",
        "The jobs to create.",
        {"metadata": metadata.OBJECT_META, "spec": _job_spec()},
    )
    spec = struct(
        f"{_BATCH}.CronJobSpec",
        "When to run what.",
        {
            "schedule": text("When to run, in cron syntax."),
            "timeZone": text("Time zone of the schedule."),
            "suspend": boolean("Whether no more jobs are started."),
            "concurrencyPolicy": text("Allow, Forbid or Replace."),
            "startingDeadlineSeconds": integer("How late a job may start.", "int64"),
            "successfulJobsHistoryLimit": integer("How many successful jobs are kept."),
            "failedJobsHistoryLimit": integer("How many failed jobs are kept."),
            "jobTemplate": template,
        },
        required=["schedule", "jobTemplate"],
    )
    status = struct(
        f"{_BATCH}.CronJobStatus",
        "State of a cron job.",
        {
            "active": items(OBJECT_REFERENCE, "Running jobs."),
            "lastScheduleTime": time("When a job was last started."),
            "lastSuccessfulTime": time("When a job last succeeded."),
        },
    )
    return builtin_kind(
        Resource("batch", "v1", "cronjobs", "CronJob"),
        f"{_BATCH}.CronJob",
        "Starts jobs at fixed times.",
        {"spec": spec, "status": status},
        prepare=_prepare_cron_job,
        short_names=("cj",),
        categories=("all",),
        subresources=frozenset({"status"}),
        columns=(
            column("Schedule", at("spec.schedule", "")),
            column("Timezone", at("spec.timeZone", "<none>")),
            column("Suspend", at("spec.suspend", default=False), type="boolean"),
            column("Active", lambda obj: len(at("status.active", [])(obj)), type="integer"),
            Column("Last Schedule", "date", at("status.lastScheduleTime")),
            age_column(),
            *_template_columns("spec.jobTemplate.spec.template"),
            column("Selector", lambda _obj: "<none>", priority=1),
        ),
    )


def _job_spec() -> JsonObject:
    return struct(
        f"{_BATCH}.JobSpec",
        "What a job runs.",
        {
            "template": pods.pod_template(),
            "parallelism": integer("Pods at the same time."),
            "completions": integer("Pods that must succeed."),
            "backoffLimit": integer("Failures until the job fails."),
            "activeDeadlineSeconds": integer("Seconds until the job is ended.", "int64"),
            "ttlSecondsAfterFinished": integer("Seconds until a finished job is removed."),
            "selector": described(LABEL_SELECTOR, "Selects the pods; usually set by the server."),
            "manualSelector": boolean("Whether the selector is chosen by the user."),
            "completionMode": text("NonIndexed or Indexed."),
            "suspend": boolean("Whether the job is held back."),
            "podReplacementPolicy": text("When pods are replaced."),
            "podFailurePolicy": anything("How failures count."),
        },
        required=["template"],
        preserve_unknown_fields=True,
    )


def _prepare_job(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    _default_job(spec)
    spec.setdefault("parallelism", 1)
    spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    new.setdefault("status", {})
    if old is None:
        _select_own_pods(new)
    return list(_job_causes(spec, "spec"))


def _prepare_cron_job(new: JsonObject, _old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    job = template.setdefault("spec", {})
    _default_job(job)
    job["template"].setdefault("metadata", {})
    new.setdefault("status", {})
    return [*_schedule_causes(spec.get("schedule") or ""), *_job_causes(job, "spec.jobTemplate.spec")]


def _default_job(spec: JsonObject) -> None:
    pods.default_template(spec.setdefault("template", {}), restart="")


def _select_own_pods(job: JsonObject) -> None:
    """The labels that tell the pods of one job from those of all others."""
    meta, spec = job["metadata"], job["spec"]
    uid, name = meta.get("uid"), meta.get("name")
    if spec["manualSelector"] or spec.get("selector") or not uid:
        return
    labels = {_UID_LABEL: uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
    spec["selector"] = {"matchLabels": {_UID_LABEL: uid}}
    for holder in (meta, spec["template"].setdefault("metadata", {})):
        holder["labels"] = {**(holder.get("labels") or {}), **labels}


def _job_causes(spec: JsonObject, path: str) -> Iterator[Cause]:
    yield from pods.template_causes(spec["template"], f"{path}.template")
    policy = (spec["template"].get("spec") or {}).get("restartPolicy")
    where, allowed = f"{path}.template.spec.restartPolicy", ("OnFailure", "Never")
    if not policy:
        yield causes.required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in allowed:
        yield causes.not_supported(where, policy, allowed)


def _schedule_causes(schedule: str) -> Iterator[Cause]:
    fields = schedule.split()
    if not schedule:
        yield causes.required("spec.schedule")
    elif not schedule.startswith("@") and len(fields) != 5:
        shown = " ".join(fields)
        detail = f"expected exactly 5 fields, found {len(fields)}: [{shown}]"
        yield causes.invalid("spec.schedule", schedule, detail)


def _job_status(obj: JsonObject) -> str:
    for condition in at("status.conditions", [])(obj):
        if condition.get("status") == "True" and condition.get("type") in {"Complete", "Failed", "Suspended"}:
            return str(condition["type"])
    return "Running"


def _selector(obj: JsonObject) -> str:
    labels: dict[str, Any] = at("spec.selector.matchLabels", {})(obj)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _template_columns(path: str) -> tuple[Column, ...]:
    template = at(path, {})
    return (
        column("Containers", lambda obj: pods.container_names(template(obj)), priority=1),
        column("Images", lambda obj: pods.container_images(template(obj)), priority=1),
    )
