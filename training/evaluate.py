"""Scores candidate, champion, base rate and boosting on the newest window, which no evaluation fit has seen."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from artifacts.step import DataFault, progress, step
from artifacts.store import publish
from training import report
from training.contract import BoostingParams, Columns, EvaluateSpec, EvaluationRef, FitRef, Gain, Scores
from training.data import Rows, both_classes, encoded, read_rows, signature_of
from training.fit import open_fit
from training.scoring import Floats, calibration_bins, paired_gains, roc_points, scores_of

EVALUATION_FILE = "evaluation.json"
PAGE_FILE = "evaluation.html"
BASE_RATE, BOOSTING, CANDIDATE, CHAMPION, FINAL = "base rate", "boosting", "candidate", "champion", "final"


def evaluate(spec: EvaluateSpec) -> EvaluationRef:
    """Scores everything on test_first..test_last; raises DataFault when that window cannot judge."""
    require_unseen(spec)
    progress(0.02, "reading the training set")
    fits = {CANDIDATE: spec.candidate, FINAL: spec.final, **({CHAMPION: spec.champion} if spec.champion else {})}
    names = {name for fit in fits.values() for name in (*fit.columns.numeric, *fit.columns.categorical)}
    rows = read_rows(spec.dataset, sorted(names))
    test = both_classes(rows.between(spec.windows.test_first, spec.windows.test_last, "test"), "test")
    label = test.label.astype(np.float64)

    answers: dict[str, Floats] = {}
    for place, (name, fit) in enumerate(fits.items()):
        progress(0.1 + 0.1 * place, f"scoring {name} on {len(test)} rows")
        answers[name] = require_probabilities(open_fit(fit).scores(test.columns), name)
    answers[BASE_RATE] = np.full(len(test), spec.candidate.base_rate)
    progress(0.4, "fitting the yardstick (gradient boosting)")
    train = rows.between(spec.windows.train_first, spec.windows.train_last, "training")
    answers[BOOSTING], importance = boosted(train, test, spec.candidate.columns, spec.boosting, spec.seed)

    progress(0.8, f"bootstrapping {spec.bootstrap_draws} draws")
    scores = {name: scores_of(score, label) for name, score in answers.items()}
    gains: dict[str, Gain] = {}
    if spec.champion:
        pair = paired_gains(answers[CANDIDATE], answers[CHAMPION], label, spec.bootstrap_draws, spec.seed)
        gains = dict(zip(("log_loss", "auc"), pair, strict=True))
    figures = figures_of(spec, label, answers, scores, gains, importance)
    with publish(spec.output, "evaluation") as draft:
        content = json.dumps(figures, indent=1, allow_nan=False, sort_keys=True)
        (draft.path / EVALUATION_FILE).write_text(content)
        (draft.path / PAGE_FILE).write_text(html(spec, label, answers, scores, gains, importance))
        draft.facts = {"training_key": spec.candidate.training_key, "log_loss": scores[CANDIDATE].log_loss}
    assert draft.manifest is not None  # noqa: S101  publish sets it
    return EvaluationRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        model=spec.model,
        training_key=spec.candidate.training_key,
        test_first=spec.windows.test_first,
        test_last=spec.windows.test_last,
        rows=len(test),
        positives=int(label.sum()),
        candidate=scores[CANDIDATE],
        final=scores[FINAL],
        base_rate=scores[BASE_RATE],
        boosting=scores[BOOSTING],
        champion=scores.get(CHAMPION),
        champion_key=spec.champion.training_key if spec.champion else None,
        gain_log_loss=gains.get("log_loss"),
        gain_auc=gains.get("auc"),
    )


def require_unseen(spec: EvaluateSpec) -> None:
    """Raises DataFault unless both evaluation fits ended before the test window begins (design 3.9)."""
    compared: tuple[tuple[str, FitRef | None], ...] = ((CANDIDATE, spec.candidate), (CHAMPION, spec.champion))
    problems = []
    for name, fit in compared:
        if fit is None:
            continue
        if fit.fit != "evaluation":
            problems.append(f"{name}: is a {fit.fit} fit; give the evaluation fit, the other has seen the window")
        if fit.seen_last >= spec.windows.test_first:
            problems.append(
                f"{name}: seen_last={fit.seen_last} does not precede test_first={spec.windows.test_first}; it would be "
                f"judged on days it has learnt; use a later partition or an earlier fit"
            )
    if problems:
        raise DataFault(problems)


def require_probabilities(score: Floats, name: str) -> Floats:
    """The same scores; raises DataFault when one of them is no probability."""
    broken = int((~((score >= 0) & (score <= 1))).sum())
    if broken:
        raise DataFault([
            f"{name}: {broken} of {len(score)} scores are no probability (NaN or outside 0..1); train it again, its "
            f"weights are damaged"
        ])
    return score


def boosted(
    train: Rows, test: Rows, columns: Columns, params: BoostingParams, seed: int
) -> tuple[Floats, dict[str, float]]:
    """Boosting's answers [B] for the test rows, and each feature's share of the total gain."""
    signature = signature_of(train, columns)
    names = [*columns.numeric, *columns.categorical]

    def table(rows: Rows) -> npt.NDArray[np.float32]:
        arrays = encoded(rows, signature)
        return np.hstack([arrays.numeric, arrays.categorical.astype(np.float32)])

    learnt = lightgbm.train(
        boosting_options(params, seed),
        lightgbm.Dataset(table(train), train.label, feature_name=names, categorical_feature=list(columns.categorical)),
        num_boost_round=params.rounds,
    )
    gain = learnt.feature_importance("gain")
    shares = gain / gain.sum() if gain.sum() > 0 else np.full(len(names), 1 / len(names))
    answers = np.asarray(learnt.predict(table(test)), dtype=np.float64)
    return answers, dict(zip(names, shares.tolist(), strict=True))


def boosting_options(params: BoostingParams, seed: int) -> dict[str, Any]:
    """LightGBM's words for the fixed parameters; equal rows give equal trees."""
    return {
        "objective": "binary",
        "learning_rate": params.learning_rate,
        "num_leaves": params.leaves,
        "min_data_in_leaf": params.min_rows_per_leaf,
        "seed": seed,
        "deterministic": True,
        "num_threads": 1,  # on shared cores its threads spend most of their time waiting for each other (measured: 6 x)
        "force_row_wise": True,
        "verbose": -1,
    }


def figures_of(
    spec: EvaluateSpec,
    label: Floats,
    answers: dict[str, Floats],
    scores: dict[str, Scores],
    gains: dict[str, Gain],
    importance: dict[str, float],
) -> dict[str, Any]:
    """The content of evaluation.json."""
    figures: dict[str, Any] = {
        "model": spec.model,
        "training_key": spec.candidate.training_key,
        "dataset": spec.dataset.digest,
        "windows": spec.windows.model_dump(mode="json"),
        "rows": len(label),
        "positives": int(label.sum()),
        "scores": {name: found.model_dump() for name, found in scores.items()},
        "gains": {name: gain.model_dump() for name, gain in gains.items()},
        "bootstrap": {"draws": spec.bootstrap_draws, "seed": spec.seed, "unit": "row", "paired": True},
        "reliability": {
            name: [{"mean": mean, "share": share, "rows": rows} for mean, share, rows in calibration_bins(score, label)]
            for name, score in answers.items()
        },
        "boosting": spec.boosting.model_dump(),
        "importance": importance,
    }
    if spec.champion:
        figures["champion_key"] = spec.champion.training_key
        difference = np.abs(answers[CANDIDATE] - answers[CHAMPION])
        figures["mean_absolute_difference"] = float(difference.mean())
    return figures


def html(
    spec: EvaluateSpec,
    label: Floats,
    answers: dict[str, Floats],
    scores: dict[str, Scores],
    gains: dict[str, Gain],
    importance: dict[str, float],
) -> str:
    """The content of evaluation.html."""
    drawn = {name: answers[name] for name in (CANDIDATE, BOOSTING, CHAMPION) if name in answers}
    bins = {name: [(mean, share) for mean, share, _ in calibration_bins(score, label)] for name, score in drawn.items()}
    rocs = {name: roc_points(score, label) for name, score in drawn.items()}
    first, last = spec.windows.test_first, spec.windows.test_last
    facts = (
        f"Test window {days(first, last)}, {len(label):,} rows, {label.mean():.1%} positive. Training key "
        f"{spec.candidate.training_key}. The final fit has seen this window; its row is a sanity bound, not evidence."
    )
    sections = {"Scores": report.scores_table(scores)}
    if gains:
        sections["Candidate against champion"] = report.gains_table(gains)
    sections["Plots"] = f'<div class="plots">{report.reliability_svg(bins)}{report.roc_svg(rocs)}</div>'
    sections["What boosting looks at"] = report.bars_table(importance)
    return report.page(f"Evaluation of {spec.model}", facts, sections)


def days(first: dt.date, last: dt.date) -> str:
    """A span of days in words."""
    return f"{first} to {last} ({(last - first).days + 1} days)"


if __name__ == "__main__":
    sys.exit(step(evaluate, EvaluateSpec))
