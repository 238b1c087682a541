"""What the policy hears besides the checks: alerts, new labels, loss by age, training times. Reads manifests only."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from artifacts.refs import Uri
from monitoring.contract import AgeLoss, Alert, DriftPolicy, Quality
from operators.ledger import Entry
from operators.pipelines import Pipeline
from operators.plans import watch as plans

DAY = dt.timedelta(days=1)
WEEK_DAYS = 7  # loss is averaged over the weeks of age: a weekday's own level then cancels
LONGEST_WORDS = 300


def alerts(entries: Sequence[Entry]) -> tuple[Alert, ...]:
    """What was said from outside, one value per partition; several alerts of a day are one hit."""
    said = defaultdict(list)
    for entry in entries:
        said[dt.date.fromisoformat(str(entry.body["partition"]))].append(str(entry.body["words"]))
    return tuple(
        Alert(partition=day, words="; ".join(dict.fromkeys(words))[:LONGEST_WORDS])
        for day, words in sorted(said.items())
    )


def new_labels(row: Pipeline, store: Uri, since: dt.date, until: dt.date) -> int:
    """Rows labelled in the closed partitions after ``since`` through ``until``."""
    return sum(ref.rows for ref in plans.labels(row, store, since + DAY, until))


def counted_from(trained_through: dt.date, decisions: Sequence[Entry]) -> dt.date:
    """The day after which labels are new: that of training, or of a retrain tried since, whatever became of it."""
    tried = [dt.date.fromisoformat(str(entry.body["partition"])) for entry in decisions]
    return max(trained_through, *tried) if tried else trained_through


def training_p95(decisions: Sequence[Entry], ends: Mapping[int, Entry]) -> dt.timedelta:
    """The 95th percentile of decision to end on the data clock, of retrains that came to an end; zero without any."""
    times = sorted(
        ends[entry.id].at - entry.at
        for entry in decisions
        if entry.id in ends and ends[entry.id].body["outcome"] in ("trained", "refused")
    )
    return times[math.ceil(0.95 * len(times)) - 1] if times else dt.timedelta(0)


def ageing(
    checks: Sequence[Entry], trained_through: Callable[[str], dt.date | None], policy: DriftPolicy
) -> AgeLoss | None:
    """Log loss above that at promotion by age, as the stored versions showed it in service, in weeks; None without data.

    A week needs ``quality_days`` figures; a week without is left out, and the line over it is straight.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for entry in checks:
        trained = trained_through(str(entry.body["package_digest"]))
        quality: Any = entry.body.get("quality")
        if trained is None or not quality:
            continue
        figure = Quality.model_validate(quality)
        age = ((figure.last or dt.date.fromisoformat(str(entry.body["partition"]))) - trained).days
        if age > 0:
            loss = (figure.skill_at_promotion - figure.skill) * figure.base_log_loss
            found[math.ceil(age / WEEK_DAYS) * WEEK_DAYS].append(loss)
    weeks = {age: losses for age, losses in sorted(found.items()) if len(losses) >= policy.quality_days}
    if not weeks:
        return None
    return AgeLoss(days=tuple(weeks), excess=tuple(math.fsum(losses) / len(losses) for losses in weeks.values()))


class News(NamedTuple):
    """What has come since the newest decision about a live version, and the partition that is asked again for it."""

    partition: dt.date
    alert: int | None
    labels: int
    words: str


class Heard(NamedTuple):
    """What a decision knew: the newest alert's ledger id, and the count of new labels."""

    alert: int
    labels: int


def news(last: Entry, said: Sequence[Entry], labels: int, policy: DriftPolicy) -> News | None:
    """Whether the newest check is to be decided anew: an alert about a day that still counts, or enough further labels.

    An alert about a day that has not been checked waits for that day's check. A check that failed has its own tries.
    """
    if last.body.get("failed"):
        return None
    newest = dt.date.fromisoformat(str(last.body["partition"]))
    known: Any = last.body.get("heard") or {"alert": last.id, "labels": labels}
    heard = Heard(**known)
    oldest = newest - (policy.window - 1) * DAY
    late = [
        entry
        for entry in said
        if entry.id > heard.alert and oldest <= dt.date.fromisoformat(str(entry.body["partition"])) <= newest
    ]
    if late:
        return News(newest, late[-1].id, labels, f"{len(late)} alerts about checked days")
    if policy.feedback_rows is not None and labels - heard.labels >= policy.feedback_rows:
        return News(newest, None, labels, f"{labels - heard.labels} further labels (due at {policy.feedback_rows})")
    return None
