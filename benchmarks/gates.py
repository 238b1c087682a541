"""How often the real bootstrap and the real gate G4 are wrong, on worlds whose truth is known.

A world is a population of rows with their true probabilities. Both models see them through noise of one size; the candidate
also answers too low, by just what makes it worse by a given log loss over the population. Its AUC is as good as the
champion's, so the guard helps nobody. Each trial draws a window and its labels anew, and drift has asked for the retrain,
so that non-inferiority is all that a candidate needs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from artifacts.refs import sha256
from benchmarks.report import report
from feature_repo.contract import DatasetRef
from training.bootstrap import auc_of
from training.contract import Columns, EvaluationRef, FitRef, GateEvidence, GatePolicy, Network
from training.gate import champion as gate
from training.measures import Gain, Scores
from training.scoring import Floats, paired_gains

POPULATION, ROWS, DRAWS, SEED = 200_000, 13_000, 2000, 20130831
TRIALS = 300
POLICY = GatePolicy()
PARTITION = dt.date(2013, 8, 31)
SPREAD = 1.0  # of the log odds; with a mean of -1.2 the share of positives is 0.26 and the best AUC 0.76
NOISE = 0.15  # in the log odds of both models: they disagree as two fits of one recipe do
WEIGHT = 1_000  # the exact AUC counts each row as positive and as negative, with its probabilities in thousandths


@dataclass(frozen=True)
class World:
    """True probabilities and both models' answers, each [POPULATION]; ``gain`` and ``gain_auc`` are the candidate's own."""

    truth: Floats
    candidate: Floats
    champion: Floats
    gain: float
    gain_auc: float


def sigmoid(logit: Floats) -> Floats:
    """Probabilities of log odds."""
    return 1 / (1 + np.exp(-logit))


def cross_entropy(truth: Floats, answer: Floats) -> float:
    """The expected log loss over the population."""
    return float(-np.mean(truth * np.log(answer) + (1 - truth) * np.log1p(-answer)))


def exact_auc(truth: Floats, answer: Floats) -> float:
    """The AUC over the population, with every row as a positive and a negative, weighted by its probability."""
    label = np.concatenate([np.ones(len(truth)), np.zeros(len(truth))])
    weight = np.rint(np.concatenate([truth, 1 - truth]) * WEIGHT).astype(np.int64)
    return auc_of(np.tile(answer, 2), label)(weight)


def world(loss: float, seed: int) -> World:
    """A candidate whose log loss is higher than the champion's by ``loss``; 0: another model that is as good."""
    generator = np.random.default_rng((SEED, seed))
    logit = generator.normal(-1.2, SPREAD, POPULATION)
    truth = sigmoid(logit)
    champion, blurred = (logit + NOISE * generator.normal(size=POPULATION) for _ in range(2))
    aim = cross_entropy(truth, sigmoid(champion)) + loss
    shift = _bisect(lambda size: cross_entropy(truth, sigmoid(blurred - size)) - aim) if loss else 0.0
    candidate, champion = sigmoid(blurred - shift), sigmoid(champion)
    return World(
        truth,
        candidate,
        champion,
        cross_entropy(truth, champion) - cross_entropy(truth, candidate),
        exact_auc(truth, candidate) - exact_auc(truth, champion),
    )


def _bisect(excess: Callable[[float], float], low: float = 0.0, high: float = 4.0) -> float:
    """Where a rising function crosses zero."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return (low + high) / 2


def trial(given: World, number: int, rows: int = ROWS, draws: int = DRAWS) -> tuple[Gain, Gain]:
    """Both gains on one window."""
    generator = np.random.default_rng((SEED, 1, number))
    chosen = generator.integers(0, POPULATION, rows)
    label = (generator.random(rows) < given.truth[chosen]).astype(np.float64)
    return paired_gains(given.candidate[chosen], given.champion[chosen], label, draws, number)


def verdict(gains: tuple[Gain, Gain], rows: int = ROWS) -> str:
    """The status that the real gate gives."""
    return gate(evidence(gains, rows), POLICY).status


def evidence(gains: tuple[Gain, Gain], rows: int) -> GateEvidence:
    """A version of which the gate asks nothing but these gains."""
    scores = Scores(log_loss=0.5, auc=0.75, pr_auc=0.5, brier=0.15, ece=0.01)
    dataset = DatasetRef(
        uri="file:///dataset",
        digest=sha256(b"dataset"),
        key=sha256(b"dataset"),
        model="world",
        partition=PARTITION,
        as_of=dt.datetime(2013, 9, 1, tzinfo=dt.UTC),
        rows=rows,
        positives=0,
        first=PARTITION,
        last=PARTITION,
        columns=("label",),
    )
    fit = FitRef(
        uri="file:///fit",
        digest=sha256(b"fit"),
        training_key=sha256(b"key"),
        model="world",
        fit="evaluation",
        dataset=dataset,
        columns=Columns(numeric=("x",), categorical=()),
        network=Network(),
        seed=1,
        epochs=1,
        rows=rows,
        train_last=PARTITION,
        seen_last=PARTITION,
        loss_first=0.6,
        loss_last=0.5,
        grad_norm_max=1.0,
        base_rate=0.26,
        seconds=1.0,
    )
    evaluation = EvaluationRef(
        uri="file:///evaluation",
        digest=sha256(b"evaluation"),
        model="world",
        training_key=fit.training_key,
        test_first=PARTITION,
        test_last=PARTITION,
        rows=rows,
        positives=0,
        candidate=scores,
        final=scores,
        base_rate=scores,
        boosting=scores,
        champion=scores,
        champion_key=sha256(b"champion"),
        gain=gains[0],
        guard_gain=gains[1],
    )
    return GateEvidence(
        dataset=dataset,
        validations=(),
        candidate=fit,
        final=fit,
        evaluation=evaluation,
        champion_partition=PARTITION,
        drift_triggered=True,
    )


def covered(gain: Gain, truth: float) -> bool:
    """Whether the interval holds the truth."""
    return gain.lower <= truth <= gain.upper


def main() -> None:
    """Runs the trials of three worlds."""
    figures: dict[str, float] = {}
    inside: list[bool] = []
    inside_auc: list[bool] = []
    statuses: dict[str, list[str]] = {}
    for number, (name, margins) in enumerate({"equal": 0.0, "margin": 1.0, "twice": 2.0}.items()):
        given = world(margins * POLICY.margin, number)
        found = [trial(given, number * TRIALS + each) for each in range(TRIALS)]
        inside += [covered(gain, given.gain) for gain, _ in found]
        inside_auc += [covered(gain, given.gain_auc) for _, gain in found]
        statuses[name] = [verdict(gains) for gains in found]
        figures[f"standard_error_{name}"] = float(np.median([gain.standard_error for gain, _ in found]))
    figures |= {
        "false_promotion_rate": statuses["margin"].count("pass") / TRIALS,
        "true_refusal_rate": statuses["twice"].count("fail") / TRIALS,
        "equal_promotion_rate": statuses["equal"].count("pass") / TRIALS,
        "equal_underpowered_rate": statuses["equal"].count("underpowered") / TRIALS,
        "coverage": float(np.mean(inside)),
        "coverage_auc": float(np.mean(inside_auc)),
        "trials": float(TRIALS),
    }
    targets = {"false_promotion_rate": "<= 0.05", "true_refusal_rate": ">= 0.95", "coverage": "0.93 to 0.97"}
    report("gates", figures, targets)


if __name__ == "__main__":
    main()
