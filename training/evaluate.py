"""Scores candidate, champion, base rate and boosting on the newest window, which no evaluation fit has seen."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from artifacts.step import DataFault, progress, step
from artifacts.store import ArtifactCorrupt, ArtifactMissing, publish
from training.contract import BoostingParams, Columns, EvaluateSpec, EvaluationRef, FitRef
from training.data import Rows, encoded, read_rows, signature_of, varied
from training.encoding import numbers
from training.evaluation import BOOSTING, CANDIDATE, CHAMPION, FINAL, Found, figures_of, html, naive
from training.fit import Fit, open_fit
from training.importance import increases
from training.measures import EVALUATION_FILE, PAGE_FILE, Task
from training.scoring import Floats, measured, paired_gains
from training.slices import Answers, Known, slices_of


def evaluate(spec: EvaluateSpec) -> EvaluationRef:
    """Scores everything on test_first..test_last; raises DataFault when that window cannot judge."""
    require_unseen(spec)
    progress(0.02, "reading the training set")
    fits = {CANDIDATE: spec.candidate, FINAL: spec.final, **({CHAMPION: spec.champion} if spec.champion else {})}
    names = {name for fit in fits.values() for name in (*fit.columns.numeric, *fit.columns.categorical)}
    names |= {dimension.column for dimension in spec.dimensions}
    names |= {spec.persistence} if spec.persistence else set()
    rows = read_rows(spec.dataset, sorted(names), spec.candidate.task)
    test = varied(rows.between(spec.windows.test_first, spec.windows.test_last, "test"), "test")
    train = rows.between(spec.windows.train_first, spec.windows.train_last, "training")
    opened = {name: opened_fit(fit, name) for name, fit in fits.items()}

    answers: dict[str, Floats] = {}
    for place, (name, fit) in enumerate(opened.items()):
        progress(0.1 + 0.1 * place, f"scoring {name} on {len(test)} rows")
        answers[name] = require_answers(fit.scores(test.columns), name, spec.candidate.task)
    answers[naive(spec)] = naive_answers(spec, test)
    progress(0.4, "fitting the yardstick (gradient boosting)")
    answers[BOOSTING], boosting_shares = boosted(
        train, test, spec.candidate.columns, spec.boosting, spec.seed, spec.candidate.task
    )
    found, seconds = compared(spec, test, answers, opened, boosting_shares)
    return published(spec, found, seconds)


def compared(
    spec: EvaluateSpec,
    test: Rows,
    answers: Mapping[str, Floats],
    opened: Mapping[str, Fit],
    boosting_shares: Mapping[str, float],
) -> tuple[Found, dict[str, float]]:
    """What the answers come to, and the seconds that its costly parts took."""
    task, label = spec.candidate.task, test.label.astype(np.float64)
    gain, guard_gain = None, None
    begun = time.monotonic()
    if spec.champion:
        progress(0.7, f"bootstrapping {spec.bootstrap_draws} draws")
        pair = (answers[CANDIDATE], answers[CHAMPION])
        gain, guard_gain = paired_gains(*pair, label, spec.bootstrap_draws, spec.seed, task)
    bootstrapped = time.monotonic()
    progress(0.85, f"shuffling each feature on {min(spec.importance_rows, len(test))} rows")
    candidate = opened[CANDIDATE]
    arrays = encoded(test, candidate.record.signature)
    shuffled = increases(
        candidate.answers, arrays, spec.candidate.columns, task, sample=spec.importance_rows, seed=spec.seed
    )
    seconds = {"bootstrap_seconds": bootstrapped - begun, "importance_seconds": time.monotonic() - bootstrapped}
    sliced = slices_of(
        test.columns,
        spec.dimensions,
        Answers(task, label, answers[CANDIDATE], answers[naive(spec)], answers.get(CHAMPION)),
        known_to(opened.get(CHAMPION)),
    )
    found = Found(
        spec=spec,
        label=label,
        answers=answers,
        scores={name: measured(answer, label, task) for name, answer in answers.items()},
        gain=gain,
        guard_gain=guard_gain,
        slices=sliced,
        increases=shuffled,
        boosting_shares=boosting_shares,
        curve=tuple((point.epoch, point.train, point.validation) for point in candidate.record.curve),
    )
    return found, seconds


def published(spec: EvaluateSpec, found: Found, seconds: Mapping[str, float]) -> EvaluationRef:
    """Writes the evidence and returns its reference. Seconds are facts, no evidence: equal work gives equal bytes."""
    with publish(spec.output, "evaluation") as draft:
        content = json.dumps(figures_of(found), indent=1, allow_nan=False, sort_keys=True)
        (draft.path / EVALUATION_FILE).write_text(content)
        (draft.path / PAGE_FILE).write_text(html(found))
        draft.facts = {"training_key": spec.candidate.training_key, **seconds}
    assert draft.manifest is not None  # noqa: S101  publish sets it
    return EvaluationRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        model=spec.model,
        training_key=spec.candidate.training_key,
        test_first=spec.windows.test_first,
        test_last=spec.windows.test_last,
        rows=len(found.label),
        positives=int(found.label.sum()) if found.task == "classification" else 0,
        task=found.task,
        candidate=found.scores[CANDIDATE],
        final=found.scores[FINAL],
        base_rate=found.scores[naive(spec)],
        persistence=spec.persistence,
        boosting=found.scores[BOOSTING],
        champion=found.scores.get(CHAMPION),
        champion_key=spec.champion.training_key if spec.champion else None,
        gain=found.gain,
        guard_gain=found.guard_gain,
    )


def opened_fit(ref: FitRef, name: str) -> Fit:
    """Opens a fit; raises DataFault when it is gone or damaged. A champion that is gone is no first model: nobody wins."""
    try:
        return open_fit(ref)
    except (ArtifactMissing, ArtifactCorrupt) as error:
        raise DataFault([
            f"{name}: its {ref.fit} fit cannot be opened, so nothing can be compared with it ({error}); restore it from a "
            f"copy of the store{', or roll back to a version that is whole' if name == CHAMPION else ''}"
        ]) from error


def known_to(champion: Fit | None) -> Known:
    """Whether the champion's training rows had a value; a column that it does not read as words counts as known."""
    words = (
        {item.name: frozenset(item.vocabulary) for item in champion.record.signature.categorical} if champion else {}
    )
    return lambda column, value: column not in words or value in words[column]


def require_unseen(spec: EvaluateSpec) -> None:
    """Raises DataFault unless both evaluation fits ended before the test window begins (design 3.9)."""
    compared: tuple[tuple[str, FitRef | None], ...] = ((CANDIDATE, spec.candidate), (CHAMPION, spec.champion))
    problems = []
    for name, fit in compared:
        if fit is None:
            continue
        if fit.task != spec.candidate.task:
            problems.append(f"{name}: is a {fit.task}, the candidate a {spec.candidate.task}; they cannot be compared")
        if fit.fit != "evaluation":
            problems.append(f"{name}: is a {fit.fit} fit; give the evaluation fit, the other has seen the window")
        if fit.seen_last >= spec.windows.test_first:
            problems.append(
                f"{name}: seen_last={fit.seen_last} does not precede test_first={spec.windows.test_first}; it would be "
                f"judged on days it has learnt; use a later partition or an earlier fit"
            )
    if problems:
        raise DataFault(problems)


def naive_answers(spec: EvaluateSpec, test: Rows) -> Floats:
    """The training rows' constant [B], or the column that persists, where it has a value."""
    constant = np.full(len(test), spec.candidate.base_rate)
    if spec.persistence is None:
        return constant
    column = numbers(test.columns[spec.persistence], spec.persistence).astype(np.float64)
    return np.where(np.isfinite(column), column, constant)


def require_answers(answer: Floats, name: str, task: Task) -> Floats:
    """The same answers; raises DataFault when one of them is no probability, or no number."""
    good = (answer >= 0) & (answer <= 1) if task == "classification" else np.isfinite(answer)
    broken = int((~good).sum())
    if broken:
        what = "probability (NaN or outside 0..1)" if task == "classification" else "finite number"
        raise DataFault([
            f"{name}: {broken} of {len(answer)} scores are no {what}; train it again, its weights are damaged"
        ])
    return answer


def boosted(
    train: Rows,
    test: Rows,
    columns: Columns,
    params: BoostingParams,
    seed: int,
    task: Task = "classification",
) -> tuple[Floats, dict[str, float]]:
    """Boosting's answers [B] for the test rows, and each feature's share of the total gain."""
    signature = signature_of(train, columns)
    names = [*columns.numeric, *columns.categorical]

    def table(rows: Rows) -> npt.NDArray[np.float32]:
        arrays = encoded(rows, signature)
        return np.hstack([arrays.numeric, arrays.categorical.astype(np.float32)])

    learnt = lightgbm.train(
        boosting_options(params, seed, task),
        lightgbm.Dataset(table(train), train.label, feature_name=names, categorical_feature=list(columns.categorical)),
        num_boost_round=params.rounds,
    )
    gain = learnt.feature_importance("gain")
    shares = gain / gain.sum() if gain.sum() > 0 else np.full(len(names), 1 / len(names))
    answers = np.asarray(learnt.predict(table(test)), dtype=np.float64)
    return answers, dict(zip(names, shares.tolist(), strict=True))


def boosting_options(params: BoostingParams, seed: int, task: Task) -> dict[str, Any]:
    """LightGBM's words for the fixed parameters; equal rows give equal trees."""
    return {
        "objective": "binary" if task == "classification" else "regression_l1",
        "learning_rate": params.learning_rate,
        "num_leaves": params.leaves,
        "min_data_in_leaf": params.min_rows_per_leaf,
        "seed": seed,
        "deterministic": True,
        "num_threads": 1,  # on shared cores its threads spend most of their time waiting for each other (measured: 6 x)
        "force_row_wise": True,
        "verbose": -1,
    }


if __name__ == "__main__":
    sys.exit(step(evaluate, EvaluateSpec))
