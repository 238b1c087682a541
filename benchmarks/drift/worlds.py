"""Synthetic worlds for the drift policy: 20 features with days of their own, a yearly season, labels, and what is planted.

A value is row noise of deviation 1, plus the day's level, which is autocorrelated from day to day, plus the season. So a
day is no random sample of a quarter, as in real data; independent rows would flatter every detector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

ROWS, FEATURES = 950, 20
MEMORY = 0.7  # autocorrelation of a day's level with the next day's
LEVEL = 0.075  # deviation of the levels: more than twice what 950 rows explain by chance
SEASON, STRONG_SEASON, STRONG = 0.1, 0.2, 3  # amplitudes; peak to trough stays below the shift that is to be found
YEAR = 365
INTERCEPT, SLOPE = -1.2, 1.0  # a quarter of the labels is positive, and the inputs explain a good part of them
FALLING = 0.88  # each feature weighs this share of the one before

Floats = npt.NDArray[np.float64]
NAMES = tuple(f"origin__x{place:02d}" for place in range(FEATURES))


@dataclass(frozen=True)
class Plant:
    """What happens to the world from ``start`` on."""

    start: int = 10**9
    shift: float = 0.0  # in row deviations
    held: float = 0.4  # importance of the shifted features
    days: int = 1  # over which the shift grows
    wave: float = 0.0  # amplitude of a weekly wave, always there
    relation: bool = False  # features of that importance lose their meaning for the label
    broken: str = ""  # "null" or "constant": the heaviest feature


@dataclass(frozen=True)
class Day:
    """One day of requests: features [B, F], labels [B]."""

    features: Floats
    label: Floats


@dataclass
class World:
    """A stream of days; the same seed gives the same days."""

    seed: int
    plant: Plant = Plant()
    level: float = LEVEL
    weights: Floats = field(init=False)
    slopes: Floats = field(init=False)
    shifted: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """Draws what stays the same: weights, slopes, seasons, and which features a plant concerns."""
        rng = np.random.default_rng([self.seed, 1])
        self.weights = rng.permutation(FALLING ** np.arange(FEATURES))
        self.weights /= self.weights.sum()
        signs = rng.choice([-1.0, 1.0], FEATURES)
        self.slopes = SLOPE * signs * np.sqrt(self.weights)
        self.shifted = _holding(self.weights, self.plant.held, rng)
        self._direction = rng.choice([-1.0, 1.0], FEATURES)
        self._season = np.full(FEATURES, SEASON)
        self._season[rng.choice(FEATURES, STRONG, replace=False)] = STRONG_SEASON
        self._phase, self._begin = rng.random(FEATURES) * YEAR, int(rng.integers(YEAR))
        self._levels = np.zeros(FEATURES)
        self._rng, self._next = np.random.default_rng([self.seed, 2]), 0

    def truth(self, number: int) -> Floats:
        """The slopes that labels follow on a day: what a model trained then can learn."""
        lost = self.plant.relation and number >= self.plant.start
        return np.where(self.shifted, -self.slopes, self.slopes) if lost else self.slopes

    def day(self) -> Day:
        """The next day."""
        number, rng, plant = self._next, self._rng, self.plant
        self._next += 1
        step = np.sqrt(1 - MEMORY**2) if number else 1.0
        self._levels = MEMORY * self._levels + step * self.level * rng.normal(size=FEATURES)
        season = self._season * np.sin(2 * np.pi * (self._begin + number + self._phase) / YEAR)
        grown = min(max((number - plant.start + 1) / plant.days, 0.0), 1.0)
        moved = self.shifted * self._direction * (plant.shift * grown + plant.wave * np.sin(2 * np.pi * number / 7))
        features = rng.normal(size=(ROWS, FEATURES)) + self._levels + season + moved
        label = (rng.random(ROWS) < probability(features, self.truth(number))).astype(float)
        if plant.broken and number >= plant.start:
            heaviest = int(self.weights.argmax())
            features[:, heaviest] = np.nan if plant.broken == "null" else 0.5
        return Day(features, label)


def probability(features: Floats, slopes: Floats) -> Floats:
    """What a model with these slopes answers [B]; a null counts as 0."""
    return np.asarray(1 / (1 + np.exp(-(INTERCEPT + np.nan_to_num(features) @ slopes))))


def _holding(weights: Floats, share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Features drawn until they hold a share of the importance; the last one drawn is the one that comes closest to it."""
    chosen = np.zeros(len(weights), dtype=bool)
    for place in rng.permutation(len(weights)):
        if weights[chosen].sum() + weights[place] <= share + 1e-9:
            chosen[place] = True
    rest = np.flatnonzero(~chosen)
    missing = share - weights[chosen].sum()
    if missing > 0.005:  # noqa: PLR2004  of the importance; nearer than any weight
        chosen[rest[np.abs(weights[rest] - missing).argmin()]] = True
    return chosen
