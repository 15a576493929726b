"""The only source of time for rendering if the caller passes no clock."""

from __future__ import annotations

from time import thread_time, time_ns

wall_nanos = time_ns
"""Nanoseconds since 1970, for the template function `now`."""

busy_seconds = thread_time
"""Processor time of the calling thread, for the time limit of a render: a busy machine does not shorten it."""
