"""The replay of an old champion, with a real graph on what was served."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts.refs import file_uri, join, sha256
from artifacts.step import DataFault
from artifacts.store import read_ref
from monitoring.contract import DriftPolicy
from monitoring.effect import replay
from monitoring.effect_contract import EffectSpec
from tests.make import monitoring as make

NEW = sha256(b"new")
STREAM = make.stream(4, 600)


def spec(root: Path, shift: float, drop: tuple[str, ...] = (), labelled: int = 600) -> EffectSpec:
    """Four days that a new version answered, ``shift`` away in the logit from the truth, which the old graph computes."""
    uri, logged, labels = file_uri(root), [], []
    for number, columns in enumerate(STREAM):
        day = make.LAST + (number + 1) * make.DAY
        scores = 1 / (1 + np.exp(-make.model_logit(columns["origin__departure_delay_mean_3h"]) - shift))
        logged.append(make.predictions(uri, day, columns, NEW, drop=drop, score=scores))
        known = {f"{day}-{row}": int(label) for row, label in enumerate(columns["label"][:labelled])}
        labels.append(make.feedback(uri, day, known))
    return EffectSpec(
        model=make.MODEL,
        old=make.package(uri),
        new=NEW,
        predictions=tuple(logged),
        feedback=tuple(labels),
        policy=DriftPolicy(),
        seed=1,
        output=join(uri, "effect"),
    )


def test_a_worse_version_is_seen_on_requests_that_neither_has_trained_on(tmp_path: Path) -> None:
    found = replay(spec(tmp_path, shift=1.0))
    assert (found.requests, found.labelled, found.days) == (2400, 2400, 4)
    assert (found.first, found.last) == (make.LAST + make.DAY, make.LAST + 4 * make.DAY)
    assert found.loss_old is not None
    assert found.loss_new is not None
    assert found.loss_new - found.loss_old > 0.05
    assert found.gain_lower is not None
    assert found.gain_lower < 0
    assert read_ref(found).file("effect.json").is_file()


def test_the_same_version_gains_nothing_and_the_same_spec_gives_the_same_figures(tmp_path: Path) -> None:
    one, two = replay(spec(tmp_path / "one", shift=0.0)), replay(spec(tmp_path / "two", shift=0.0))
    assert one.loss_old == pytest.approx(one.loss_new, abs=1e-6)
    assert one.model_dump(exclude={"uri"}) == two.model_dump(exclude={"uri"})


def test_a_regression_is_judged_by_its_absolute_error(tmp_path: Path) -> None:
    asked = spec(tmp_path, shift=1.0)
    old = asked.old.model_copy(update={"serving": asked.old.serving.model_copy(update={"task": "regression"})})
    found = replay(asked.model_copy(update={"old": old}))
    answers = np.concatenate([columns["origin__departure_delay_mean_3h"] for columns in STREAM])
    labels = np.concatenate([columns["label"] for columns in STREAM])
    off = [np.abs(1 / (1 + np.exp(-make.model_logit(answers) - shift)) - labels).mean() for shift in (0.0, 1.0)]
    assert found.task == "regression"
    assert (found.loss_old, found.loss_new) == pytest.approx(off, rel=1e-5)


@pytest.mark.parametrize(("labelled", "rows"), [(0, 0), (300, 0)])
def test_days_without_labels_or_labelled_in_part_give_no_figures(tmp_path: Path, labelled: int, rows: int) -> None:
    found = replay(spec(tmp_path, shift=1.0, labelled=labelled))
    assert (found.requests, found.labelled, found.loss_old, found.gain_lower) == (2400, rows, None, None)


def test_a_version_that_answered_nothing_has_no_figures(tmp_path: Path) -> None:
    found = replay(spec(tmp_path, shift=1.0).model_copy(update={"new": sha256(b"rolled back at once")}))
    assert (found.requests, found.labelled, found.loss_new) == (0, 0, None)


def test_a_log_without_what_the_old_version_reads_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="no column 'feature__weather__temp', which it reads"):
        replay(spec(tmp_path, shift=1.0, drop=("feature__weather__temp",)))


def test_artifacts_of_another_model_are_refused_before_work(tmp_path: Path) -> None:
    given = spec(tmp_path, shift=1.0)
    other: dict[str, Any] = given.model_dump() | {"model": "diamonds"}
    with pytest.raises(ValueError, match="belong to"):
        EffectSpec.model_validate(other)
    assert given.predictions[0].partition == dt.date(2013, 9, 1)
