"""Flights of July to December 2013 under a June model, day by day through the real policy.

The models are boosted trees with fixed parameters, not the torch network: the daily baseline alone needs 200 fits, which is
minutes here and a day there, and what is compared is when to fit, not what. Every rule gets the same fits: a retrain decided
on partition D learns the days before D (a label takes a day) and answers from D + 2 on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artifacts.refs import Digest, sha256
from benchmarks.drift.fits import (
    GAP,
    JUNE,
    LIVE_AFTER,
    OLDEST,
    ONE,
    START,
    TEST_DAYS,
    WEEK,
    Flights,
    days,
)
from benchmarks.drift.loop import check_of
from monitoring import quality
from monitoring.audit import effect, precision
from monitoring.baseline import LABEL, PREDICTION, Baseline
from monitoring.contract import AgeLoss, CheckRow, Decision, DriftPolicy, EffectEvidence, RetrainRow, Situation
from monitoring.drift import Bins, bins_of, psi
from monitoring.measure import Compared, measure_window
from monitoring.policy import decide, row_of
from monitoring.reference import monitor
from monitoring.windows import FEATURE, Labelled, Window, column
from training.contract import GatePolicy
from training.recipes.flight_delay import COLUMNS, MODEL, SEED
from training.scoring import paired_gains

FIXED_PSI = 0.2  # what the fixed rule asks of a feature
EPOCH = dt.date(1970, 1, 1).toordinal()
RETRAIN_COST = 0.1  # log loss x days: what a model that is 0.01 worse loses in ten days

KINDS: tuple[tuple[Literal["numeric", "categorical"], tuple[str, ...]], ...] = (
    ("numeric", COLUMNS.numeric),
    ("categorical", COLUMNS.categorical),
)


# --- rules -------------------------------------------------------------------------------------------------------------


def served(flights: Flights, retrains: Sequence[dt.date], last: dt.date) -> float:
    """Mean log loss of the days from July on when these retrains have gone live one after the other."""
    total, rows = 0.0, 0
    for day in days(START, last):
        live = max((each for each in retrains if each + LIVE_AFTER * ONE <= day), default=JUNE)
        losses = flights.losses(live, flights.between(day, day))
        total, rows = total + float(losses.sum()), rows + len(losses)
    return total / rows


def evenly(number: int, last: dt.date) -> list[dt.date]:
    """A calendar: that many retrains, evenly spaced, so that every model serves equally long."""
    span = (last - START).days + 1
    return [START - ONE + round(span * place / (number + 1)) * ONE for place in range(1, number + 1)]


def age_losses(flights: Flights, now: dt.date) -> AgeLoss:
    """Loss by age as known on a day: weekly fits of the past, each against the newest one on the same days."""
    fits = list(days(OLDEST, now - WEEK * ONE, WEEK))
    found: dict[int, list[float]] = {}
    for newest in fits:
        week = flights.between(newest + ONE, newest + WEEK * ONE)
        fresh = float(flights.losses(newest, week).mean())
        for older in fits:
            age = (newest - older).days
            if 0 < age <= 12 * WEEK:
                found.setdefault(age, []).append(float(flights.losses(older, week).mean()) - fresh)
    ages = sorted(found)
    return AgeLoss(days=tuple(ages), excess=tuple(float(np.mean(found[age])) for age in ages))


@dataclass(frozen=True)
class Version:
    """A live version of the policy's run."""

    decided: dt.date
    baseline: Baseline
    promoted: quality.Promoted


def version(flights: Flights, decided: dt.date, policy: DriftPolicy) -> Version:
    """What ``monitoring.reference`` freezes for a version: its own last 90 days, scored by itself."""
    fit, rows = flights.fit(decided), flights.between(decided - policy.reference_days * ONE, decided - ONE)
    part = flights.table.slice(rows.start, rows.stop - rows.start)
    number = flights.day[rows].astype(np.int64) + EPOCH

    def watch(name: str, kind: Any, values: npt.NDArray[Any], weight: float = 0.0) -> Any:
        return monitor(name, kind, weight, values, number, policy)

    digest = sha256(str(decided).encode())
    baseline = Baseline(
        model=MODEL,
        package_digest=digest,
        dataset_digest=digest,
        first=decided - policy.reference_days * ONE,
        last=decided - ONE,
        rows=part.num_rows,
        blocks=len(np.unique(number)),
        features=tuple(
            watch(name, kind, column(part, name, kind), fit.importance[name]) for kind, names in KINDS for name in names
        ),
        prediction=watch(PREDICTION, "numeric", fit.score[rows.start - fit.offset : rows.stop - fit.offset]),
        label=watch(LABEL, "categorical", column(part, "label", "categorical")),
    )
    return Version(decided, baseline, tested(flights, decided))


def evaluated(decided: dt.date) -> dt.date:
    """The fit that stands for a version's evaluation fit: the one whose rows end before gap and test window."""
    return decided - (TEST_DAYS + GAP) * ONE


def tested(flights: Flights, decided: dt.date) -> quality.Promoted:
    """The evaluation fit on its test window, per day."""
    rows = flights.between(decided - TEST_DAYS * ONE, decided - ONE)
    sums = quality.day_sums(
        flights.losses(evaluated(decided), rows), flights.label[rows], flights.day[rows].astype(np.int64)
    )
    return quality.Promoted(float(quality.skill_of(sums.sum(axis=1)[None])[0]), sums)


def promotes(flights: Flights, champion: dt.date, candidate: dt.date, gates: GatePolicy) -> bool:
    """G4 for a drift retrain: the evaluation fits on the newest days that neither has seen; not worse by the margin."""
    first = max(candidate - TEST_DAYS * ONE, evaluated(champion) + ONE)
    rows = flights.between(first, candidate - ONE)
    old, new = (flights.fit(evaluated(each)) for each in (champion, candidate))
    scores = [fit.score[rows.start - fit.offset : rows.stop - fit.offset] for fit in (new, old)]
    gain, area = paired_gains(scores[0], scores[1], flights.label[rows], 500, SEED)
    return gain.lower >= -gates.margin and (gates.guard_margin is None or area.lower >= -gates.guard_margin)


def check(flights: Flights, live: Version, day: dt.date, since: dt.date, policy: DriftPolicy) -> CheckRow:
    """The check of a closed partition; labels are those of the version's earlier days, at most a week."""
    fit, rows = flights.fit(live.decided), flights.between(day, day)
    part = flights.table.slice(rows.start, rows.stop - rows.start)
    features = {FEATURE + name: part.column(name) for name in (*COLUMNS.numeric, *COLUMNS.categorical)}
    score = fit.score[rows.start - fit.offset : rows.stop - fit.offset]
    window = Window(pa.table({"score": score, **features}), (day,), np.zeros(rows.stop - rows.start, dtype=np.int64))
    known = flights.between(max(day - policy.merge_partitions * ONE, since), day - ONE)
    earliest = day - policy.merge_partitions * ONE
    number = (flights.day[known] - np.datetime64(earliest)).astype(np.int64)
    labels = Labelled(
        score=fit.score[known.start - fit.offset : known.stop - fit.offset],
        label=flights.label[known],
        day=number,
        requests=np.bincount(number, minlength=policy.merge_partitions),
        partitions=tuple(days(earliest, day - ONE)),
    )
    digest: Digest = live.baseline.package_digest
    found = measure_window(Compared(live.baseline, digest, window, labels, live.promoted, policy, seed=SEED))
    return row_of(check_of(found, day, digest), policy)


@dataclass(frozen=True)
class Run:
    """What the policy did: retrains that went live, all retrains, and each day's decision."""

    live: list[dt.date]
    asked: list[tuple[dt.date, Decision]]
    decisions: list[Decision]
    precision: str


def policy_run(flights: Flights, policy: DriftPolicy, last: dt.date, told: Callable[[int, int], None]) -> Run:
    """July to December, one check a day, retrains judged by G4 and audited by a replay of the old champion."""
    live, since, gates = version(flights, JUNE, policy), START, GatePolicy()
    curve, history, retrains = age_losses(flights, JUNE), list[CheckRow](), list[RetrainRow]()
    effects: list[EffectEvidence] = []
    run, every = Run([], [], [], ""), list(days(START, last))
    coming: tuple[dt.date, Version] | None = None
    closed: dt.datetime | None = None
    for place, day in enumerate(every, start=1):
        told(place, len(every))
        if coming is not None and day >= coming[0]:
            live, since, coming = coming[1], coming[0], None
        if day.day == 1:
            curve = age_losses(flights, day)
        history.append(check(flights, live, day, since, policy))
        now = dt.datetime.combine(day + ONE, dt.time(14), dt.UTC)
        if retrains and retrains[-1].score_after is None and since > retrains[-1].decided_at.date() - ONE:
            retrains[-1] = retrains[-1].model_copy(update={"score_after": history[-1].score})
        situation = Situation(
            model=MODEL,
            now=now,
            retrains=tuple(retrains),
            trained_through=live.decided - ONE,
            ageing=curve,
            breaker_closed_at=closed,
            effects=tuple(effect(each, policy) for each in effects if each.decided_at + policy.audit_after <= now),
        )
        decision = decide(history, situation, policy)
        run.decisions.append(decision)
        if not decision.retrain:
            continue
        run.asked.append((day, decision))
        promoted = promotes(flights, live.decided, day, gates)
        ended = now + dt.timedelta(hours=1)
        before = history[-1].score
        retrains.append(
            RetrainRow(
                decided_at=now,
                ended_at=ended,
                promoted=promoted,
                score_before=before if decision.cause == "drift" else None,
                trigger_id=decision.trigger_id,
                cause=decision.cause or "drift",
            )
        )
        closed = now if promoted and decision.cause == "staleness" else closed
        if decision.cause in {"drift", "urgent"}:
            effects.append(audited(flights, live.decided, day, last, now, promoted=promoted))
        if promoted:
            coming = (day + LIVE_AFTER * ONE, version(flights, day, policy))
            run.live.append(day)
    return Run(run.live, run.asked, run.decisions, precision([effect(each, policy) for each in effects], policy).words)


def audited(
    flights: Flights, champion: dt.date, candidate: dt.date, last: dt.date, now: dt.datetime, *, promoted: bool
) -> EffectEvidence:
    """The week after a retrain: the new version's answers, and those of the old champion on the same requests."""
    first = candidate + LIVE_AFTER * ONE
    rows = flights.between(first, min(first + (WEEK - 1) * ONE, last))
    if not promoted or rows.stop == rows.start:
        return EffectEvidence(decided_at=now, promoted=promoted)
    old, new = flights.losses(champion, rows), flights.losses(candidate, rows)
    number = flights.day[rows].astype(np.int64)
    _, lower = quality.gain(old, new, number, 500, np.random.default_rng(SEED))
    return EffectEvidence(
        decided_at=now,
        promoted=True,
        labelled=len(old),
        loss_old=float(old.mean()),
        loss_new=float(new.mean()),
        gain_lower=lower,
    )


def fixed_psi_run(flights: Flights, last: dt.date, told: Callable[[int, int], None]) -> list[dt.date]:
    """The fixed rule: PSI of 0.2 in features with 30 % of the importance retrains, and moves the reference."""
    policy, live, columns = DriftPolicy(), JUNE, _columns(flights)
    bins = _fixed_bins(flights, JUNE, columns)
    retrains, every = [], list(days(START, last))
    for place, day in enumerate(every, start=1):
        told(place, len(every))
        rows, share = flights.between(day, day), 0.0
        for name, (own, before) in bins.items():
            counts = np.bincount(own.codes(columns[name][rows]), minlength=own.width)
            rare = policy.rare_share if name in COLUMNS.categorical else 0.0
            if float(psi(counts, before, rare)) > FIXED_PSI:
                share += flights.fit(live).importance[name]
        if share >= policy.trigger_share:
            retrains.append(day)
            live = day
            bins = _fixed_bins(flights, day, columns)
    return retrains


@dataclass(frozen=True)
class _Numbered:
    """Bins of a column of words that is held as their numbers: one for each word of the year, and one for null."""

    width: int

    def codes(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers themselves."""
        return values


def _columns(flights: Flights) -> dict[str, npt.NDArray[Any]]:
    """The year's columns: numbers as they are, words as their numbers, since each retrain counts 90 days of them anew."""
    found: dict[str, npt.NDArray[Any]] = {name: column(flights.table, name, "numeric") for name in COLUMNS.numeric}
    for name in COLUMNS.categorical:
        values = column(flights.table, name, "categorical")
        found[name] = bins_of(values, "categorical", 2).codes(values)
    return found


def _fixed_bins(
    flights: Flights, decided: dt.date, columns: dict[str, npt.NDArray[Any]]
) -> dict[str, tuple[Bins | _Numbered, npt.NDArray[np.int64]]]:
    """Each feature's bins and counts of the 90 days before a fit."""
    policy, found = DriftPolicy(), {}
    rows = flights.between(decided - policy.reference_days * ONE, decided - ONE)
    for name, values in columns.items():
        own: Bins | _Numbered = (
            _Numbered(int(values.max()) + 1)
            if name in COLUMNS.categorical
            else bins_of(values[rows], "numeric", policy.bins)
        )
        found[name] = own, np.bincount(own.codes(values[rows]), minlength=own.width)
    return found
