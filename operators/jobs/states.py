"""The states of a job and the way from one to the next. Pure.

One way forward; a job may skip states that it does not pass, such as QUEUED where there is no queue. EVICTED goes back to
QUEUED. STORING is passed on every way to COMPLETED, and by what fails after it has begun to work, so that logs and
checkpoints of a failure are kept too.
"""

from __future__ import annotations

from typing import Literal, get_args

State = Literal[
    "DECLARED",
    "VALIDATED",
    "QUEUED",
    "ADMITTED",
    "STARTING",
    "DOWNLOADING",
    "PROCESSING",
    "STORING",
    "COMPLETED",
    "FAILED",
    "HALTED",
    "EVICTED",
]
STATES: tuple[State, ...] = get_args(State)
TERMINAL: frozenset[State] = frozenset({"COMPLETED", "FAILED", "HALTED"})
WORKING: frozenset[State] = frozenset({"STARTING", "DOWNLOADING", "PROCESSING", "STORING"})

EDGES: dict[State, frozenset[State]] = {
    "DECLARED": frozenset({"VALIDATED", "FAILED", "HALTED"}),
    "VALIDATED": frozenset({"QUEUED", "ADMITTED", "FAILED", "HALTED"}),
    "QUEUED": frozenset({"ADMITTED", "FAILED", "HALTED"}),
    "ADMITTED": frozenset({"STARTING", "QUEUED", "EVICTED", "FAILED", "HALTED"}),
    "STARTING": frozenset({"DOWNLOADING", "PROCESSING", "EVICTED", "FAILED", "HALTED"}),
    "DOWNLOADING": frozenset({"PROCESSING", "STORING", "EVICTED"}),
    "PROCESSING": frozenset({"STORING", "EVICTED"}),
    "STORING": frozenset({"COMPLETED", "FAILED", "HALTED", "EVICTED"}),
    "EVICTED": frozenset({"QUEUED", "FAILED", "HALTED"}),
    "COMPLETED": frozenset(),
    "FAILED": frozenset(),
    "HALTED": frozenset(),
}
"""State -> the states that may follow it (decisions.md 6)."""


def path(before: State, wanted: State) -> tuple[State, ...]:
    """The shortest way from one state to another, without the first; empty when it is the same.

    What is observed from outside skips states that were passed between two looks; the history does not.
    Raises ValueError where there is no way, such as out of a terminal state.
    """
    if before == wanted:
        return ()
    ways: list[tuple[State, ...]] = [(before,)]
    seen = {before}
    while ways:
        way = ways.pop(0)
        for following in sorted(EDGES[way[-1]] - seen, key=STATES.index, reverse=True):
            if following == wanted:
                return (*way[1:], following)
            seen.add(following)
            if following not in TERMINAL | {"EVICTED"}:  # nobody was evicted because we looked away
                ways.append((*way, following))
    raise ValueError(
        f"a job in {before} cannot become {wanted}; from there it goes to {sorted(EDGES[before]) or 'nowhere'}"
    )
