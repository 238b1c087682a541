"""Puts back into Triton what the routing records say is live; an explicit-mode server starts empty."""

from __future__ import annotations

import logging

from operators import live
from operators.ledger import ledger
from operators.payload import StepCall
from operators.pipelines import PIPELINES
from operators.plans.release import stage
from operators.process import ProcessRunner
from operators.settings import platform
from operators.steps import Skip, plan
from serving.contract import Deployed, StageRef


def _stage(version: Deployed) -> None:
    call = StepCall(
        "serving.stage",
        "serving",
        lambda: stage(version.package, version.name, platform().triton),
        StageRef,
        effect=True,
    )
    planned = plan(call, {}, platform().store)
    if isinstance(planned, Skip):
        raise TypeError(planned.reason)
    ProcessRunner(planned, ledger(), platform().state / "locks", {"task": "reload"}).run()


def load_live() -> list[str]:
    """Stages every champion and previous version; one that is loaded already is only asked its golden requests."""
    names = []
    for row in PIPELINES:
        routing, _ = live.routing(row.model)
        for version in (routing.champion, routing.previous):
            if version is not None:
                _stage(version)
                names.append(version.name)
    return names


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("perennial").setLevel(logging.WARNING)  # the terminal is for people; the ledger has the attempts
    load_live()
