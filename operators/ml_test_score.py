"""``python -m operators.ml_test_score [MODEL]``: the ML Test Score of a model, from what the ledger and the store prove.

Four groups of seven tests (Breck et al., "The ML Test Score", 2017): a point for what runs by itself and left its evidence, half
of one for what is only pinned or ready, none for what nobody measured. The score is that of the weakest group.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from artifacts.store import read_ref
from operators import live
from operators.approvals import judged
from operators.ledger import ledger
from operators.pipelines import PIPELINES, Pipeline, pipeline
from operators.tasks.release import PROMOTION, RELEASE
from operators.tasks.retrain import champion_version
from operators.tasks.watch import DRIFT
from training.measures import EVALUATION_FILE

GROUPS = ("data", "model", "infrastructure", "monitoring")
AIM = 3.0  # in each group before automatic promotion (decisions.md 5)


@dataclass(frozen=True)
class Proof:
    """What is known about the live version of a model. Statuses are the gates' own words."""

    gates: Mapping[str, str] = field(default_factory=dict)
    """Gate, such as 'G5', -> status."""
    importance: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Feature -> (rise of the deciding figure when it is shuffled, its standard error)."""
    inclusion: bool = False
    """Whether the row has a budget for how far groups may lie apart."""
    judged_live: bool = False
    previous: bool = False
    rolled_back: bool = False
    checks: int = 0
    quality_checks: int = 0
    age_days: int | None = None
    age_limit_days: int = 7

    def holds(self, gate: str) -> bool:
        """Whether a gate has passed."""
        return self.gates.get(gate) == "pass"


@dataclass(frozen=True)
class Item:
    """One of the 28 tests: its points, and what gave them or what is missing."""

    group: str
    name: str
    points: float
    words: str


Answer = tuple[float, str]
Rule = Callable[[Proof], Answer]


def _gate(gate: str, good: str, missing: str) -> Rule:
    return lambda proof: (
        (1.0, f"{gate} passed: {good}") if proof.holds(gate) else (0.0, f"{gate} did not pass: {missing}")
    )


def _never(missing: str) -> Rule:
    return lambda _: (0.0, missing)


def _beneficial(proof: Proof) -> Answer:
    idle = sorted(name for name, (rise, error) in proof.importance.items() if rise <= 2 * error)
    if not proof.importance:
        return 0.0, "no permutation importance is known"
    if idle:
        return (
            0.5,
            f"{len(idle)} of {len(proof.importance)} features show no benefit beyond 2 standard errors: {', '.join(idle)}",
        )
    return 1.0, f"shuffling any of the {len(proof.importance)} features does harm"


def _inclusion(proof: Proof) -> Answer:
    if not proof.inclusion:
        return 0.0, "the row has no budget for groups (GatePolicy.group_gap)"
    return _gate("G6", "groups lie within the row's budget", "groups are not within their budget")(proof)


def _canary(proof: Proof) -> Answer:
    return (
        (1.0, "the live version was judged on requests first")
        if proof.judged_live
        else (0.0, "no judgement before traffic")
    )


def _rollback(proof: Proof) -> Answer:
    if proof.rolled_back:
        return 1.0, "a rollback has been done"
    return (
        (0.5, "the previous version is loaded; no rollback was ever done")
        if proof.previous
        else (0.0, "there is no previous")
    )


def _invariants(proof: Proof) -> Answer:
    return (
        (1.0, f"{proof.checks} days of inputs checked") if proof.checks else (0.0, "no day of inputs has been checked")
    )


def _quality(proof: Proof) -> Answer:
    found = proof.quality_checks
    return (
        (1.0, f"{found} days measured from labels")
        if found
        else (0.0, "no served day has been measured from its labels")
    )


def _stale(proof: Proof) -> Answer:
    if proof.age_days is None:
        return 0.0, "nothing is live"
    words = f"the live version is {proof.age_days} days old, the limit {proof.age_limit_days}"
    return (1.0 if proof.age_days <= proof.age_limit_days else 0.0), words


def _pinned(proof: Proof) -> Answer:
    if not proof.holds("G0"):
        return 0.0, "G0 did not pass: data, code and seed are not pinned"
    return 0.5, "data, code and seed are pinned; no second training has shown the same weights"


RULES: tuple[tuple[str, str, Rule], ...] = (
    ("data", "feature expectations are in a schema", _gate("G1", "every expectation held", "expectations did not hold")),
    ("data", "all features are beneficial", _beneficial),
    ("data", "no feature costs too much", _never("no cost per feature is measured")),
    ("data", "features keep to meta-level rules", _never("no policy of allowed features is declared")),
    ("data", "privacy controls", _never("no access control or retention is proved")),
    ("data", "a new feature is quick to add", _never("the time is not measured")),
    ("data", "feature code is tested", _never("the ledger has no test runs; CI does")),
    ("model", "specs are reviewed", _never("no review is on record")),
    ("model", "offline and online metrics agree", _never("no metric of the business is known")),
    ("model", "hyperparameters are tuned", _never("no search is on record")),
    ("model", "the impact of staleness is known", _never("no retrain with older data was measured")),
    ("model", "a simpler model is not better", _gate("G3", "base rate and boosting are no better", "a yardstick is as good")),
    ("model", "quality on slices", _gate("G5", "no slice loses", "slices lose, or too few rows show it")),
    ("model", "inclusion", _inclusion),
    ("infrastructure", "training is reproducible", _pinned),
    ("infrastructure", "model specs are unit tested", _never("the ledger has no test runs; CI does")),
    ("infrastructure", "the pipeline is integration tested", _never("the ledger has no test runs; CI does")),
    ("infrastructure", "quality before serving", _gate("G4", "compared with the champion", "there was no champion to beat")),
    ("infrastructure", "one example can be followed", _never("no debugger of single predictions")),
    ("infrastructure", "canary before serving", _canary),
    ("infrastructure", "rollback", _rollback),
    ("monitoring", "changes of dependencies are noticed", _never("sources send no notice")),
    ("monitoring", "input invariants hold", _invariants),
    ("monitoring", "training and serving agree", _never("no skew check of served rows is in the ledger")),
    ("monitoring", "models are not stale", _stale),
    ("monitoring", "numbers are stable", _gate("G2", "losses and gradients are finite", "a fit is not sane")),
    ("monitoring", "no regression of speed", _never("no latency or training time is held against the last version's")),
    ("monitoring", "no regression of quality when served", _quality),
)  # fmt: skip


def score(proof: Proof) -> tuple[Item, ...]:
    """The 28 tests, in the order of the groups. Pure."""
    return tuple(Item(group, name, *rule(proof)) for group, name, rule in RULES)


def sums(items: tuple[Item, ...]) -> dict[str, float]:
    """The points of each group."""
    return {group: sum(item.points for item in items if item.group == group) for group in GROUPS}


def proof_of(row: Pipeline) -> Proof:
    """What the ledger, the routing record and the evaluation prove about the version that is live."""
    book, (routing, _) = ledger(), live.routing(row.model)
    version, limit = champion_version(row.model), row.gates.champion_age.days
    if version is None or routing.champion is None:
        return Proof(inclusion=row.gates.group_gap is not None, age_limit_days=limit)
    package, registered = routing.champion.package.digest, version.registered
    entry = judged(book, row.model).get(registered.training_key)
    verdicts: Any = entry.body["verdicts"] if entry else []
    checks = [one for one in book.entries(DRIFT, row.model) if one.body.get("package_digest") == package]
    releases = [one for one in book.entries(RELEASE, row.model) if one.body["package"] == package]
    evaluation = json.loads(read_ref(version.evaluation_ref()).file(EVALUATION_FILE).read_bytes())
    return Proof(
        gates={str(one["gate"]).split()[0]: str(one["status"]) for one in verdicts},
        importance={
            name: (one["increase"], one["standard_error"]) for name, one in evaluation.get("permutation", {}).items()
        },
        inclusion=row.gates.group_gap is not None,
        judged_live=any(one.body["outcome"] == "promoted" and one.body["evidence"] for one in releases),
        previous=routing.previous is not None,
        rolled_back=any(one.body.get("rollback") for one in book.entries(PROMOTION, row.model)),
        checks=sum(not one.body.get("failed") for one in checks),
        quality_checks=sum(bool(one.body.get("quality")) for one in checks),
        age_days=(live.now().date() - registered.partition).days,
        age_limit_days=limit,
    )


def lines(model: str, items: tuple[Item, ...]) -> list[str]:
    """The score as text: one line per test, what is missing included, and the sums."""
    found = [f"{item.group:<15}{item.points:>4.1f}  {item.name}: {item.words}" for item in items]
    groups = sums(items)
    weakest = min(groups, key=lambda group: groups[group])
    says = ", ".join(f"{group} {points:.1f}" for group, points in groups.items())
    behind = [group for group, points in groups.items() if points < AIM]
    aim = f"; below the aim of {AIM:.0f} for automatic promotion: {', '.join(behind)}" if behind else ""
    return [*found, f"{model}: ML Test Score {groups[weakest]:.1f} of 7, the least of {says}{aim}"]


def main(argv: list[str]) -> int:
    """Prints the score of one model, or of all."""
    parser = argparse.ArgumentParser(prog="python -m operators.ml_test_score", description=__doc__)
    parser.add_argument("model", nargs="?")
    wanted = parser.parse_args(argv).model
    for row in (pipeline(wanted),) if wanted else PIPELINES:
        sys.stdout.write("\n".join(lines(row.model, score(proof_of(row)))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
