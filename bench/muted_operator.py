"""The operator with a switch: SIGUSR1 switches its events off, and on again.

So bursts with and without events alternate in one process, which compares them better than two processes would.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from eso_operator.main import main
from kuberun.events import EventRecorder

_record = EventRecorder.record
_muted = False


def _switch(*_: object) -> None:
    global _muted  # noqa: PLW0603 - one switch for the process
    _muted = not _muted


def _record_unless_muted(self: EventRecorder, *args: Any, **kwargs: Any) -> None:
    if not _muted:
        _record(self, *args, **kwargs)


if __name__ == "__main__":
    EventRecorder.record = _record_unless_muted  # type: ignore[method-assign]  # the switch
    signal.signal(signal.SIGUSR1, _switch)
    sys.exit(main())
