"""A line on the terminal that says what is waited for, and disappears. Files and pipes never get it.

Only the command itself writes to the terminal, so it erases the line before each line that stays. A line that another
thread draws again and again would mix with them.
"""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

from eso_cli.terminal import echo

_ERASE: Final = "\r\x1b[2K"


class Progress:
    """What the user waits for, on standard error if that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Show the text until the next line is printed."""
        if self._is_terminal:
            self._write(f"{_ERASE}{text} …")
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._write(_ERASE)
            self._shown = False

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a line that stays."""
        self.clear()
        echo(line, err=err, coloured=True)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self._stream.write(text.replace("…", "..."))
        self._stream.flush()
