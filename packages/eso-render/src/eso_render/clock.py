"""The one place where rendering gets the time from, when the caller passes no clock of its own."""

from __future__ import annotations

from time import monotonic, thread_time, time_ns

wall_nanos = time_ns
"""Nanoseconds since 1970: what `now` shows."""

steady_seconds = monotonic
"""Seconds that only go forward: what a render's deadline is measured with."""

busy_seconds = thread_time
"""Seconds that the calling thread has computed: what others took of the machine meanwhile does not count."""
