"""The process for slow rendering: it reads one job after the other and returns each result.

It inherits only one socket from its parent, holds no credentials and writes no files. It is ended from outside: by the
kernel when a job has used its processor time or the parent has ended, and by the parent or its own alarm if a job takes
much longer on the clock.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from eso_api.externalsecret import Target
from eso_api.template import Template
from eso_render.errors import RenderError
from eso_render.jobs import Budget, Job, JobResult, clock_limit, packed, unpacked
from eso_render.secret import render_secret
from kubebase.meta import ObjectMeta
from kubebase.workerserving import confine, serve

_OUR_PACKAGES: Final = ("eso_", "gotmpl")
_WARM_UP: Final = Target(template=Template(data={"key": "{{ now }}"}))
_GRACE: Final = 1.0
_NO_MEMORY: Final = "the templates need more memory than a template may take; use fewer or smaller values"


def main(memory: int) -> None:
    """Serve until the parent closes the socket, which is this process's standard input."""
    confine(memory)
    render_secret(_WARM_UP, {}, owner=ObjectMeta())  # loads all code now: the first job has as much time as the others
    serve(_run_job)


def _run_job(raw: bytes) -> bytes:
    try:
        job: Job = unpacked(raw)
        signal.setitimer(signal.ITIMER_PROF, job.seconds)
        signal.setitimer(signal.ITIMER_REAL, clock_limit(job.seconds) + _GRACE)
        return packed(JobResult(job.work(render=Budget(job))))
    except MemoryError:
        return packed(JobResult(error=RenderError(_NO_MEMORY, phase="execute")))
    except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
        return packed(JobResult(error=_safe_error(error)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _safe_error(error: Exception) -> Exception:
    """Return an error that is safe to send: our own errors contain no values; of others only the type is reported."""
    if type(error).__module__.startswith(_OUR_PACKAGES):
        return error
    return RenderError(f"internal error ({type(error).__name__})", phase="execute")


if __name__ == "__main__":
    main(int(sys.argv[1]))
