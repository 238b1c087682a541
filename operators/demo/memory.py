"""The peak memory of the stack and of the demo, as PSS: pages that forked processes share are counted once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from operators.stack import proportional_memory, running

SAMPLE_SECONDS = 3.0
MIB = 1 << 20


class Sampler:
    """Samples until it is stopped."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file
        self._stopped = threading.Event()
        self.peak_mib = 0

    def run(self) -> None:
        """Keeps the largest sum seen."""
        while True:
            stack = running(self._pid_file)
            total = proportional_memory(os.getpid()) + (proportional_memory(stack) if stack else 0)
            self.peak_mib = max(self.peak_mib, total // MIB)
            if self._stopped.wait(SAMPLE_SECONDS):
                return

    def stop(self) -> None:
        """Ends the sampling."""
        self._stopped.set()
