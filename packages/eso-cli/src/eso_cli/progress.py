"""A sign of progress for people who wait: one line on the terminal that disappears. Files and pipes never get it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def waiting(text: str, stream: TextIO | None = None) -> Iterator[Callable[[], None]]:
    """Show the text on standard error while the block runs, or until the yielded function is called.

    Lines that are printed meanwhile appear above it.
    """
    stream = stream or sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    from rich.console import Console

    with Console(file=stream).status(text) as shown:
        yield shown.stop
