"""One model's life in a synthetic world, day by day, through the real reference, measures and policy.

Simulated are the world and the retrain itself: a version knows the relation of the day on which it was trained, and its
reference is the last 90 days before that.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from artifacts.refs import Digest, sha256
from benchmarks.drift.worlds import NAMES, ROWS, Day, Floats, World, probability
from monitoring import quality
from monitoring.baseline import LABEL, PREDICTION, Baseline
from monitoring.contract import CheckRef, CheckRow, Decision, DriftPolicy, RetrainRow, Situation
from monitoring.drift import bins_of, psi
from monitoring.findings import CheckReport
from monitoring.measure import Compared, measure_window
from monitoring.policy import decide, row_of
from monitoring.reference import monitor
from monitoring.windows import FEATURE, Labelled, Window

FIRST = dt.date(2013, 1, 1)
ONE = dt.timedelta(days=1)
NOON, TRAINING = dt.time(12), dt.timedelta(hours=1)
EVERY = 9  # of the reference's rows are given to the rule that retrains nearly each day; 9,500 quantiles are as good
TEST_DAYS, LABEL_DELAY = 14, 1  # the evaluation's window, and days until a partition's labels are known


@dataclass(frozen=True)
class Version:
    """A live version: what it knows, and what is normal for it."""

    number: int
    slopes: Floats
    baseline: Baseline
    promoted: quality.Promoted

    @property
    def digest(self) -> Digest:
        """Its package."""
        return self.baseline.package_digest


def version(number: int, world: World, through: int, days: list[Day], policy: DriftPolicy) -> Version:
    """The version trained through a day on ``days``, the last of which is that day."""
    slopes = world.truth(through)
    kept = days[-policy.reference_days :]
    day = np.repeat(np.arange(len(kept)), ROWS)
    ordinal = (FIRST + (through - len(kept) + 1) * ONE).toordinal() + day
    features, label = np.concatenate([each.features for each in kept]), np.concatenate([each.label for each in kept])
    scores, by_feature = probability(features, slopes), np.ascontiguousarray(features.T)
    words = np.where(label > 0, "1", "0").astype(object)
    digest = sha256(f"version {number}".encode())
    baseline = Baseline(
        model="world",
        package_digest=digest,
        dataset_digest=digest,
        first=FIRST + (through - len(kept) + 1) * ONE,
        last=FIRST + through * ONE,
        rows=len(day),
        blocks=len(kept),
        features=tuple(
            monitor(name, "numeric", float(world.weights[place]), by_feature[place], ordinal, policy)
            for place, name in enumerate(NAMES)
        ),
        prediction=monitor(PREDICTION, "numeric", 0.0, scores, ordinal, policy),
        label=monitor(LABEL, "categorical", 0.0, words, ordinal, policy),
    )
    tested = day >= len(kept) - TEST_DAYS
    losses = quality.row_losses(scores[tested], label[tested])
    sums = quality.day_sums(losses, label[tested], day[tested])
    return Version(number, slopes, baseline, quality.Promoted(float(quality.skill_of(sums.sum(axis=1)[None])[0]), sums))


@lru_cache(maxsize=256)
def _unplanted(seed: int, level: float, policy: DriftPolicy) -> Version:
    """The first version of a world into whose reference nothing was planted; many scenarios begin with the same one."""
    world = World(seed, level=level)
    return version(0, world, policy.reference_days - 1, [world.day() for _ in range(policy.reference_days)], policy)


def first_version(world: World, kept: list[Day], policy: DriftPolicy) -> Version:
    """The version that a world begins with, trained on the days ``kept``."""
    if world.plant.start >= policy.reference_days and not world.plant.wave:
        return _unplanted(world.seed, world.level, policy)
    return version(0, world, policy.reference_days - 1, kept, policy)


def measured(live: Version, number: int, log: list[tuple[int, Day]], policy: DriftPolicy) -> CheckReport:
    """The check of a partition; ``log`` holds the days that the version answered, the partition last."""
    today = log[-1][1]
    scores = probability(today.features, live.slopes)
    columns = {FEATURE + name: pa.array(today.features[:, place]) for place, name in enumerate(NAMES)}
    window = Window(pa.table({"score": scores, **columns}), (FIRST + number * ONE,), np.zeros(ROWS, dtype=np.int64))
    recent = [(day, each) for day, each in log[-policy.merge_partitions :] if day <= number - LABEL_DELAY]
    known = [each for _, each in recent]
    features = np.concatenate([each.features for each in known]) if known else np.empty((0, len(NAMES)))
    labels = Labelled(
        score=probability(features, live.slopes),
        label=np.concatenate([each.label for each in known]) if known else np.empty(0),
        day=np.repeat(np.arange(len(known)), ROWS),
        requests=np.full(len(known), ROWS),
        partitions=tuple(FIRST + day * ONE for day, _ in recent),
    )
    return measure_window(Compared(live.baseline, live.digest, window, labels, live.promoted, policy, seed=number))


def check_of(found: CheckReport, partition: dt.date, live: Digest) -> CheckRef:
    """What the check step would return."""
    return CheckRef(
        uri=f"file:///checks/{partition}",
        digest=live,
        model=found.model,
        partition=partition,
        outcome=found.outcome,
        rows=found.rows,
        score=found.score,
        prediction_psi=found.prediction.psi if found.prediction else None,
        prediction_threshold=found.prediction_threshold,
        findings=tuple(figures.finding for figures in found.features if figures.finding.kind != "ok"),
        quality=found.quality,
        package_digest=live,
        reference_digest=live,
    )


@dataclass
class Life:
    """What happened: the days of the retrains and of each state, and every check's score."""

    retrains: list[int] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


def live_through(
    world: World,
    last: int,
    policy: DriftPolicy,
    promotes: Callable[[int], bool] = lambda _: True,
    stop: int = 10**9,
    begin: int = 0,
) -> Life:
    """Runs a world through a day; ``promotes`` says whether a retrain's version goes live.

    It ends early with the ``stop``-th retrain of the days from ``begin`` on.
    """
    kept: deque[Day] = deque(maxlen=policy.reference_days + 1)
    for _ in range(policy.reference_days):
        kept.append(world.day())
    now_live = first_version(world, list(kept), policy)
    life, history, retrains, log = Life(), list[CheckRow](), list[RetrainRow](), list[tuple[int, Day]]()
    for number in range(policy.reference_days, last + 1):
        today = world.day()
        log.append((number, today))
        row = row_of(check_of(measured(now_live, number, log, policy), FIRST + number * ONE, now_live.digest), policy)
        history.append(row)
        if retrains and retrains[-1].promoted and retrains[-1].score_after is None and row.score is not None:
            retrains[-1] = retrains[-1].model_copy(update={"score_after": row.score})
        now = dt.datetime.combine(FIRST + (number + 1) * ONE, NOON, dt.UTC)
        decision = decide(history, Situation(model="world", now=now, retrains=tuple(retrains)), policy)
        life.states.append(decision.state)
        life.decisions.append(decision)
        if decision.retrain:
            life.retrains.append(number)
            if sum(day >= begin for day in life.retrains) >= stop:
                break
            promoted = promotes(number)
            retrains.append(
                RetrainRow(
                    decided_at=now,
                    ended_at=now + TRAINING,
                    promoted=promoted,
                    score_before=row.score,
                    trigger_id=decision.trigger_id,
                )
            )
            if promoted:  # learns through the day before, whose labels are known
                now_live = version(len(life.retrains), world, number - 1, list(kept), policy)
                log.clear()
        kept.append(today)
    return life


# --- what others do ----------------------------------------------------------------------------------------------------


def wasserstein(current: Floats, quantiles: Floats, deviation: float) -> float:
    """Evidently's normed Wasserstein distance: the mean gap between sorted values and the reference's quantiles."""
    return float(np.abs(np.sort(current) - quantiles).mean() / max(deviation, 0.001))


def evidently_default(_: World, kept: list[Day]) -> Callable[[Day], bool]:
    """Evidently's verdict above 1,000 reference rows: normed Wasserstein of 0.1 in half of the columns."""
    reference = np.sort(np.concatenate([each.features[::EVERY] for each in kept]), axis=0)
    known = np.isfinite(reference).sum(axis=0)  # nulls are sorted to the end
    at = ((np.arange(ROWS)[:, None] + 0.5) / ROWS * known).astype(np.int64)
    quantiles, deviations = np.take_along_axis(reference, at, axis=0), np.nanstd(reference, axis=0)

    def verdict(today: Day) -> bool:
        columns = range(len(NAMES))
        far = [wasserstein(today.features[:, c], quantiles[:, c], deviations[c]) >= 0.1 for c in columns]  # noqa: PLR2004  its default
        return float(np.mean(far)) >= 0.5  # noqa: PLR2004  its default drift share

    return verdict


def fixed_psi(world: World, kept: list[Day]) -> Callable[[Day], bool]:
    """PSI of 0.2 in features with 30 % of the importance, against the same reference, without calibration or debounce."""
    reference = np.concatenate([each.features for each in kept])
    bins = [bins_of(reference[:, place], "numeric", 10) for place in range(len(NAMES))]
    before = [np.bincount(each.codes(reference[:, place]), minlength=each.width) for place, each in enumerate(bins)]

    def verdict(today: Day) -> bool:
        scores = [
            float(psi(np.bincount(each.codes(today.features[:, place]), minlength=each.width), before[place]))
            for place, each in enumerate(bins)
        ]
        return float(world.weights[np.array(scores) > 0.2].sum()) >= 0.3  # noqa: PLR2004  the fixed rule

    return verdict


def baseline_through(
    world: World, last: int, rule: Callable[[World, list[Day]], Callable[[Day], bool]], days: int
) -> list[int]:
    """The days on which a baseline retrains; each retrain moves its reference."""
    kept = deque([world.day() for _ in range(days)], maxlen=days)
    verdict, retrains = rule(world, list(kept)), list[int]()
    for number in range(days, last + 1):
        today = world.day()
        fires = verdict(today)
        kept.append(today)
        if fires:
            retrains.append(number)
            verdict = rule(world, list(kept))
    return retrains
