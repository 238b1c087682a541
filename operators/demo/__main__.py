"""Runs the demo: it starts what a person would start, waits for the scheduler, and judges itself by the ledger."""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
import threading
import time
from pathlib import Path

from artifacts.settings import ROOT
from operators.demo.display import Display
from operators.stack import Taken, claim
from operators.up import links, start


def main() -> int:
    """The demo; exit code 0 when the ledger holds all three endings and drift itself started the second training."""
    begun = time.monotonic()
    logging.getLogger().setLevel(logging.WARNING)  # the libraries' own words would tear the progress bars
    state = Path(os.environ.get("PERENNIAL_STATE", ROOT / "var")).absolute()
    try:
        alone = claim(state / "demo.pid")
    except Taken as error:
        raise SystemExit(
            f"demo: another demo plays in {state} (pid {error.holder}); choose another folder with PERENNIAL_STATE"
        ) from None
    with alone:
        return _play(state, begun)


def _play(state: Path, begun: float) -> int:
    display = Display()
    with display.stage("start") as say:
        say(0.1, "Airflow, Triton and the gateway")
        os.environ.update(start(state, clock="replay", schedule="off"))
    # Settings are read from the environment that `start` has just made.
    from operators.demo.loop import Loop  # noqa: PLC0415
    from operators.demo.memory import Sampler  # noqa: PLC0415
    from operators.demo.summary import summarise  # noqa: PLC0415
    from operators.demo.watching import RunFailed  # noqa: PLC0415

    sampler = Sampler(state / "stack.pid")
    threading.Thread(target=sampler.run, daemon=True).start()
    for name in ("feast", "perennial"):
        logging.getLogger(name).setLevel(logging.WARNING)
    loop = Loop(display)
    try:
        loop.run()
        good = True
    except (RunFailed, TimeoutError) as error:
        display.console.print(f"demo: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        good = False
    sampler.stop()
    if good:
        good = summarise(loop, display, state, sampler.peak_mib, round(time.monotonic() - begun, 1))
    for name, where in links(os.environ).items():
        display.console.print(f"{name:8} {where}", markup=False, highlight=False, soft_wrap=True)
    display.console.print(
        f"The stack stays up for looking around; `make down` stops it. {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M}Z"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
