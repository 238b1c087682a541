"""Step: did a drift retrain help? The old champion answers again what the new version answered, and labels decide.

The features are those that were served. Both versions were trained before the first of these requests, so the rows are
held out for both.
"""

from __future__ import annotations

import dataclasses
import sys

import pyarrow as pa

from artifacts.step import DataFault, progress, step
from artifacts.store import publish
from monitoring import quality
from monitoring.effect_contract import EffectRef, EffectSpec
from monitoring.reference import package_scores
from monitoring.skew import input_kinds
from monitoring.windows import FEATURE, Window, column, generator, labelled, log_window
from serving.contract import PackageRef


def replay(spec: EffectSpec) -> EffectRef:
    """Publishes the figures of both versions; raises DataFault when the log lacks a feature that the old one reads."""
    progress(0.1, "reading what the new version answered")
    window = log_window(spec.predictions, spec.new, spec.policy.sample_rows, spec.seed)
    task = spec.old.serving.task
    new, _ = quality.enough(labelled(window, spec.feedback, task), spec.policy)
    figures: dict[str, float | None] = {"loss_old": None, "loss_new": None, "gain_lower": None}
    days = len(set(new.day.tolist()))
    if len(new.label):
        progress(0.4, f"the old champion answers {window.rows} requests")
        old, _ = quality.enough(labelled(_answered_by(spec.old, window), spec.feedback, task), spec.policy)
        losses = [quality.losses_of(side) for side in (old, new)]
        figures |= {"loss_old": float(losses[0].mean()), "loss_new": float(losses[1].mean())}
        if days > 1:
            rng = generator(spec.seed, spec.model, "effect", spec.new)
            figures["gain_lower"] = quality.gain(losses[0], losses[1], new.day, spec.policy.bootstrap_draws, rng)[1]
    result = {
        "model": spec.model,
        "new": spec.new,
        "first": spec.predictions[0].partition,
        "last": spec.predictions[-1].partition,
        "requests": window.rows,
        "labelled": len(new.label),
        "days": days,
        "task": task,
        **figures,
    }
    with publish(spec.output, "effect") as draft:
        found = EffectRef.model_validate({"uri": spec.output, "digest": spec.new, **result})
        (draft.path / "effect.json").write_text(found.model_dump_json(indent=1, exclude={"uri", "digest"}))
        draft.facts.update(model=spec.model, labelled=found.labelled)
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return found.model_copy(update={"digest": draft.manifest.digest})


def _answered_by(package: PackageRef, window: Window) -> Window:
    """The same requests with another package's scores."""
    kinds, there = input_kinds(package.signature), set(window.table.column_names)
    missing = [name for name in kinds if FEATURE + name not in there]
    if missing:
        raise DataFault(
            f"{package.uri}: the log of its successor has no column '{FEATURE}{name}', which it reads"
            for name in missing
        )
    scores = package_scores(package, {name: column(window.table, FEATURE + name, kind) for name, kind in kinds.items()})
    place = window.table.column_names.index("score")
    return dataclasses.replace(window, table=window.table.set_column(place, "score", pa.array(scores)))


if __name__ == "__main__":
    sys.exit(step(replay, EffectSpec))
