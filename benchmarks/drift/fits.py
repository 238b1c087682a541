"""The year's rows and the fits of any day that the rules of ``drift.flights`` ask for, made once per folder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import lightgbm
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from artifacts.store import read_ref
from feature_repo.contract import DatasetRef
from monitoring import quality
from monitoring.contract import DriftPolicy
from training.contract import BoostingParams
from training.data import Rows, encoded, signature_of
from training.evaluate import boosting_options
from training.recipes.flight_delay import COLUMNS, SEED

ONE = dt.timedelta(days=1)
JUNE, START, END = dt.date(2013, 6, 30), dt.date(2013, 7, 1), dt.date(2013, 12, 30)
OLDEST = dt.date(2013, 3, 3)  # the first fit of the back-tests
TEST_DAYS, GAP, LIVE_AFTER, WEEK = 14, 1, 2, 7
TREES = BoostingParams(rounds=60, learning_rate=0.15)
FASTER = {"max_bin": 63, "feature_fraction": 0.3}  # a fifth of the time; July's log loss is the same to 0.001

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A model trained on the days before ``decided``: its scores of all rows from ``offset`` on, and gain shares."""

    decided: dt.date
    offset: int
    score: Floats
    importance: Mapping[str, float]


class Flights:
    """The year's rows, sorted by day, and the fits of any day, made once per folder."""

    def __init__(self, dataset: DatasetRef, folder: Path) -> None:
        self.table = pq.read_table(read_ref(dataset).file("rows.parquet")).sort_by("day")
        self.day = self.table.column("day").to_numpy().astype("datetime64[D]")
        self.label = self.table.column("label").to_numpy().astype(np.float64)
        self.folder = folder
        self._fits: dict[dt.date, Fit] = {}

    def at(self, day: dt.date) -> int:
        """The place of the first row of a day."""
        return int(np.searchsorted(self.day, np.datetime64(day)))

    def between(self, first: dt.date, last: dt.date) -> slice:
        """The rows of the days first..last."""
        return slice(self.at(first), self.at(last + ONE))

    @cached_property
    def matrix(self) -> npt.NDArray[np.float32]:
        """What the trees read [B, F]; words as the codes that the rows until June know."""
        names = [*COLUMNS.numeric, *COLUMNS.categorical]
        rows = Rows(self.day, self.label.astype(np.float32), {name: self.table[name].to_numpy() for name in names})
        arrays = encoded(rows, signature_of(rows.between(self.day[0].item(), JUNE - ONE, "training"), COLUMNS))
        return np.hstack([arrays.numeric, arrays.categorical.astype(np.float32)])

    @cached_property
    def binned(self) -> lightgbm.Dataset:
        """All rows in the bins of those until June, so that a fit only chooses among them."""
        known, options = self.at(JUNE), {**boosting_options(TREES, SEED, "classification"), **FASTER}
        names = [*COLUMNS.numeric, *COLUMNS.categorical]
        given = {"feature_name": names, "categorical_feature": list(COLUMNS.categorical), "params": options}
        bins = lightgbm.Dataset(self.matrix[:known], self.label[:known], **given).construct()
        return lightgbm.Dataset(self.matrix, self.label, reference=bins, **given).construct()

    def path(self, decided: dt.date) -> Path:
        """Where a fit is kept."""
        return self.folder / f"fit-{decided}.npz"

    def train(self, decided: dt.date) -> None:
        """Makes a fit unless it is there."""
        if self.path(decided).exists():
            return
        options, known = {**boosting_options(TREES, SEED, "classification"), **FASTER}, self.at(decided)
        model = lightgbm.train(options, self.binned.subset(range(known)), num_boost_round=TREES.rounds)
        offset = self.at(decided - DriftPolicy().reference_days * ONE)
        gain = model.feature_importance("gain")
        np.savez(self.path(decided), offset=offset, score=model.predict(self.matrix[offset:]), gain=gain / gain.sum())

    def fit(self, decided: dt.date) -> Fit:
        """A fit, made when it is asked for the first time."""
        if decided not in self._fits:
            self.train(decided)
            found = np.load(self.path(decided))
            names = [*COLUMNS.numeric, *COLUMNS.categorical]
            shares = dict(zip(names, found["gain"].tolist(), strict=True))
            self._fits[decided] = Fit(decided, int(found["offset"]), found["score"].astype(np.float64), shares)
        return self._fits[decided]

    def losses(self, decided: dt.date, rows: slice) -> Floats:
        """The row losses of a fit."""
        fit = self.fit(decided)
        return quality.row_losses(fit.score[rows.start - fit.offset : rows.stop - fit.offset], self.label[rows])


def days(first: dt.date, last: dt.date, step: int = 1) -> Iterator[dt.date]:
    """The days first..last."""
    return (first + number * ONE for number in range(0, (last - first).days + 1, step))


def needed(last: dt.date) -> list[dt.date]:
    """The fits that the comparison asks for: weekly for the back-tests, daily from half a month before July on."""
    return sorted({*days(OLDEST, last, WEEK), *days(JUNE - (TEST_DAYS + GAP) * ONE, last)})


_flights: Flights | None = None


def _open(dataset: DatasetRef, folder: Path) -> None:
    global _flights  # noqa: PLW0603  one per worker process, since the rows are large
    _flights = Flights(dataset, folder)


def _train(decided: dt.date) -> dt.date:
    assert _flights is not None  # noqa: S101  set by the pool's initialiser
    _flights.train(decided)
    return decided


def train_all(dataset: DatasetRef, folder: Path, last: dt.date, workers: int, told: Callable[[int, int], None]) -> None:
    """Makes all fits, the newest first."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = needed(last)[::-1]
    with ProcessPoolExecutor(workers, initializer=_open, initargs=(dataset, folder)) as pool:
        for done, _ in enumerate(pool.map(_train, wanted), start=1):
            told(done, len(wanted))
