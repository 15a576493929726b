"""Commands for child processes that end when this process ends, however it ends.

    create_subprocess_exec(*bound_to_parent(["program", "argument"], signal.SIGTERM))

On request, Linux signals a child when the thread that started it ends. The child makes this request itself, in a small
program that then executes the command. Code between fork and exec (`preexec_fn`) would run the fork handlers of every
library, and those of gRPC sometimes abort. Other systems have no such signal: there the command is unchanged.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_BIND: Final = """
import signal
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # interrupted this early, there is nothing to say
import ctypes, os, sys
parent, number, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))  # PR_SET_PDEATHSIG
if os.getppid() != int(parent):
    sys.exit("its parent ended before it began")
try:
    os.execvp(command[0], command)
except OSError as problem:
    sys.exit(f"cannot be started: {problem.strerror}")
"""


def bound_to_parent(command: Sequence[str], number: signal.Signals) -> list[str]:
    """Wrap a command so that the child receives the signal when this process ends.

    The child must be a direct child, started by a long-lived thread: the kernel treats the end of that thread as the
    end of the parent.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BIND, str(os.getpid()), str(int(number)), *command]
