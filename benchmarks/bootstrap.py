"""The paired bootstrap of both figures on 100,000 rows, beside the naive one: rows repeated, ranked and averaged anew.

Processor time of one core; the naive one runs a few draws and is scaled up. Both see the same draws, and agree.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.report import report
from training.bootstrap import resamples
from training.scoring import Floats, paired_gains, row_losses

ROWS, DRAWS, NAIVE_DRAWS, SEED = 100_000, 2000, 10, 20130831


def window() -> tuple[Floats, Floats, Floats]:
    """(candidate, champion, labels) with the share of late flights and an AUC near the reference model's."""
    generator = np.random.default_rng(SEED)
    logit = generator.normal(-1.2, 1.0, ROWS)
    label = (generator.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    candidate, champion = (1 / (1 + np.exp(-logit - generator.normal(0, scale, ROWS))) for scale in (0.2, 0.3))
    return candidate, champion, label


def naive(candidate: Floats, champion: Floats, label: Floats) -> Floats:
    """Both gains of each of a few draws, [draws, 2]."""
    found = []
    for counts in resamples(ROWS, NAIVE_DRAWS, SEED):
        rows = np.repeat(np.arange(ROWS), counts)
        gain = row_losses(champion[rows], label[rows]) - row_losses(candidate[rows], label[rows])
        areas = [roc_auc_score(label[rows], score[rows]) for score in (candidate, champion)]
        found.append((gain.mean(), areas[0] - areas[1]))
    return np.array(found)


def main() -> None:
    """Measures both on the same window."""
    given = window()
    begun = time.process_time()
    gains = paired_gains(*given, DRAWS, SEED)
    ended = time.process_time()
    slow = naive(*given)
    naive_seconds = (time.process_time() - ended) * DRAWS / NAIVE_DRAWS
    fast = paired_gains(*given, NAIVE_DRAWS, SEED)
    difference = max(abs(float(np.quantile(slow[:, place], 0.025)) - gain.lower) for place, gain in enumerate(fast))
    figures = {
        "seconds": ended - begun,
        "naive_seconds": naive_seconds,
        "times_faster": naive_seconds / (ended - begun),
        "largest_difference": difference,
        "gain_log_loss": gains[0].mean,
        "gain_auc": gains[1].mean,
    }
    report("bootstrap", figures, {"seconds": "< 10", "largest_difference": "< 1e-9"})


if __name__ == "__main__":
    main()
