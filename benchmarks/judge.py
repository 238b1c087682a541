"""How often the release rules refuse a version that is no worse, and catch one that is: simulation through the real rules.

Each trial draws one-second points of latency (lognormal; spread 0.10 for p50 and 0.20 for p99, as decisions of the release
policy state them) and errors (binomial) for both versions, and asks ``serving.gate.rule``. "Caught" is a verdict that is
not a pass. No server is asked; how versions are measured is what ``serving.pacing`` and its tests are about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu

from benchmarks.report import report
from serving.contract import ReleasePolicy
from serving.gate import Arm, Evidence, rule
from training.contract import Verdict

TARGETS = {
    "aa_fail_rate": "<= 0.02",
    "latency20_caught": ">= 0.95",
    "p99_30_caught": ">= 0.95",
    "errors_caught": ">= 0.9",
}
TRIALS, SEED = 2000, 20130901
SPREAD = {"p50": 0.10, "p99": 0.20}
BASE_MS = {"p50": 2.0, "p99": 6.0}
USUAL_ERRORS = 0.001
"""The error rate of the reference model's promise."""
KEPT = Verdict(gate="G9 budget", status="pass", reason="kept")


@dataclass(frozen=True)
class World:
    """What is true of the candidate beside the champion: factors on latency, and both error rates."""

    p50: float = 1.0
    p99: float = 1.0
    requests: int = 2000
    errors: float = USUAL_ERRORS
    champion_errors: float = USUAL_ERRORS


def caught(world: World, trials: int = TRIALS, seed: int = SEED) -> float:
    """The share of trials whose verdict is not a pass."""
    generator, policy = np.random.default_rng(seed), ReleasePolicy()
    return sum(rule(trial(world, policy, generator), policy).status != "pass" for _ in range(trials)) / trials


def trial(world: World, policy: ReleasePolicy, generator: np.random.Generator) -> Evidence:
    """What one judgement would have measured in this world."""
    ours, theirs, p_values = dict[str, float](), dict[str, float](), dict[str, float]()
    for metric, factor in (("p50", world.p50), ("p99", world.p99)):
        one, other = BASE_MS[metric] * generator.lognormal(0, SPREAD[metric], (2, policy.points))
        one = one * factor
        ours[f"{metric}_ms"], theirs[f"{metric}_ms"] = float(np.median(one)), float(np.median(other))
        p_values[metric] = float(mannwhitneyu(one, other, alternative="greater").pvalue)
    errors = (int(generator.binomial(world.requests, rate)) for rate in (world.errors, world.champion_errors))
    arms = [
        Arm(requests=world.requests, errors=failed, points=policy.points, **figures)
        for failed, figures in zip(errors, (ours, theirs), strict=True)
    ]
    return Evidence(
        labelled=policy.minimum_labelled,
        loss=0.4,
        claimed_loss=0.4,
        champion_loss=0.4,
        candidate=arms[0],
        champion=arms[1],
        equal_share=1.0,
        difference_served=0.01,
        difference_offline=0.01,
        budget=KEPT,
        latency_p=p_values,
    )


def main() -> None:
    """Prints the figures."""
    figures = {
        "aa_fail_rate": caught(World()),
        "latency20_caught": caught(World(p50=1.2)),
        "p99_30_caught": caught(World(p99=1.3)),
        "errors_caught": caught(World(requests=7750, errors=0.01, champion_errors=0.005)),
    }
    report("judge", figures, TARGETS)


if __name__ == "__main__":
    main()
