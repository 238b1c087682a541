"""Starts a command that the kernel ends when its starter dies: ``python -S follow.py <starter's pid> <command...>``.

The wish is set before the command is started and stays over ``exec``, so there is no moment, such as the seconds in
which a step imports its libraries, at which a killed task would leave its step behind. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
EXIT_NO_STARTER = 75


def main(argv: list[str]) -> None:
    """Replaces this process by the command; ends it when the starter was gone before that."""
    starter, *command = argv
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(starter):
        sys.exit(EXIT_NO_STARTER)
    os.execvp(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
