"""The first model's final fit on the ten days that follow it, beside its base rate and boosting on the same rows.

Reads the state that ``make demo`` has left (``PERENNIAL_STATE``), and joins the labels of those days anew.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
from pydantic import BaseModel

from artifacts.refs import join, short
from benchmarks.report import report
from feature_repo.contract import DatasetRef
from operators.demo.facts import FIRST_PARTITION, MODEL
from operators.demo.loop import DAYS
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.plans.retrain import Ask, training_set
from operators.process import ProcessRunner
from operators.settings import platform
from operators.steps import PENDING, Skip, StepCall, plan
from operators.versions import versions
from training.data import read_rows
from training.evaluate import boosted
from training.fit import open_fit
from training.scoring import scores_of

DAY = dt.timedelta(days=1)


def done(call: StepCall) -> BaseModel:
    """The result of one step, done before or now."""
    planned = plan(call, {}, platform().store)
    if isinstance(planned, Skip):
        raise TypeError(planned.reason)
    return ProcessRunner(planned, ledger(), platform().state / "locks").run()


def later_rows(last: dt.date) -> DatasetRef:
    """A training set that reaches ``last``, made by the same step as all others."""
    row = pipeline(MODEL)
    ask = Ask(model=MODEL, partition=last + 2 * DAY, trigger="manual", reason="benchmark")
    call = StepCall(
        "feature_repo.training_set",
        "features",
        lambda: training_set(row, platform().store, ask, PENDING),
        DatasetRef,
        output=lambda _, key: join(platform().store, "datasets", MODEL, short(key)),
    )
    return DatasetRef.model_validate(done(call))


def main() -> None:
    """Scores all three on the same ten days."""
    first = next(version for version in versions(ledger(), MODEL) if version.registered.partition == FIRST_PARTITION)
    final, row = first.final_fit_ref(), pipeline(MODEL)
    last = FIRST_PARTITION + DAYS * DAY
    rows = read_rows(later_rows(last), [*final.columns.numeric, *final.columns.categorical])
    learnt = rows.between(final.dataset.first, final.train_last, "training")
    test = rows.between(FIRST_PARTITION + DAY, last, "test")
    label = test.label.astype(np.float64)
    boosting, _ = boosted(learnt, test, final.columns, row.boosting, row.recipe.SEED)
    ours = scores_of(open_fit(final).scores(test.columns), label)
    base = scores_of(np.full(len(test), final.base_rate), label)
    theirs = scores_of(boosting, label)
    figures = {
        "rows": float(len(test)),
        "late_share": float(label.mean()),
        "logloss": ours.log_loss,
        "logloss_base": base.log_loss,
        "logloss_boosting": theirs.log_loss,
        "auc": ours.auc,
        "auc_boosting": theirs.auc,
    }
    targets = {"logloss": "< logloss_base", "auc": ">= auc_boosting - 0.02"}
    report("ten_days", figures, targets)


if __name__ == "__main__":
    main()
