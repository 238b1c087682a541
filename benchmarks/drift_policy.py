"""How often the drift policy is right: synthetic worlds, and the flights of July to December 2013, beside three other rules.

The policy, the measures and the reference's calibration are the real ones (``monitoring``); ``drift.worlds`` says what a
world is, ``drift.loop`` how a retrain is simulated, ``drift.flights`` what is fitted there. The other rules: Evidently's
default verdict, a fixed PSI of 0.2, a retrain each day.

The reported worlds have the seeds from 0 on; whoever tunes the policy does so on others (docs/adr/0011 used those from 1000
on). The other rules are run in the first ``RULE_WORLDS`` worlds of a scenario.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.drift import fits, flights
from benchmarks.drift.loop import baseline_through, evidently_default, fixed_psi, live_through
from benchmarks.drift.worlds import LEVEL, Plant, World
from benchmarks.drift.year import year
from benchmarks.report import parser, report
from monitoring.contract import DriftPolicy

POLICY = DriftPolicy()
BEFORE = POLICY.reference_days + 14  # the reference, and two quiet weeks of checks
MONTH = 30
RULE_WORLDS = 3
IN_TIME = 4  # checks of shifted days within which a planted shift must be answered
TARGETS = {
    "triggers_no_drift_365d": "<= 1",
    "planted_caught_4d": ">= 0.95",
    "unlearnable_retrains": "<= 2",
    "seasonal_triggers": "0",
    "flights_logloss_policy": "<= flights_logloss_calendar, < flights_logloss_never",
    "flights_retrains": "< flights_retrains_psi / 5",
}


@dataclass(frozen=True)
class Scenario:
    """What is planted, for how many days it is watched, in how many worlds."""

    plant: Plant
    days: int
    runs: int
    promoted: bool = True
    until_first: bool = False
    level: float = LEVEL


SCENARIOS = {
    "no drift": Scenario(Plant(), 365, 10),
    "weekly wave": Scenario(Plant(wave=0.5), 120, 10),
    "sudden": Scenario(Plant(BEFORE, 0.5), 30, 200, until_first=True),
    "gradual": Scenario(Plant(BEFORE, 0.5, days=30), 60, 10, until_first=True),
    "one feature": Scenario(Plant(BEFORE, 1.0, held=0.05), 30, 10, until_first=True),
    "label only": Scenario(Plant(BEFORE, relation=True), 30, 10, until_first=True),
    "broken feed": Scenario(Plant(BEFORE, broken="null"), 30, 10),
    "stuck feed": Scenario(Plant(BEFORE, broken="constant"), 30, 10),
    "unlearnable": Scenario(Plant(BEFORE, 0.5, relation=True), 60, 10, promoted=False),
    "sudden, louder days": Scenario(Plant(BEFORE, 0.5), 30, 40, until_first=True, level=0.1),
}
EXPECTED = {"sudden", "sudden, louder days", "gradual", "label only", "unlearnable"}  # elsewhere each retrain is false
RULES = {"Evidently default": evidently_default, "fixed PSI 0.2": fixed_psi}


class Progress:
    """One line on stderr: what is done, and how long the rest will take."""

    def __init__(self, what: str) -> None:
        self.what, self.began = what, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` are done."""
        left = (time.monotonic() - self.began) / done * (total - done)
        end = "\n" if done == total else ""
        print(f"\r{self.what}: {done} of {total}, about {left:.0f} s left   ", end=end, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Outcome:
    """One world under each rule that was run: the days of the retrains, counted from the plant's first day."""

    scenario: str
    policy: tuple[int, ...]
    rules: dict[str, tuple[int, ...]]
    last_state: str
    days: int


def one(task: tuple[str, Scenario, int]) -> Outcome:
    """One world of a scenario; the same task gives the same outcome in any process."""
    name, scenario, seed = task
    begin = scenario.plant.start if scenario.plant.start < 10**9 else POLICY.reference_days
    last, stop = begin + scenario.days - 1, 1 if scenario.until_first else 10**9
    # a retrain before the plant's first day must not end the run, or a false trigger would hide a missed one
    life = live_through(
        World(seed, scenario.plant, scenario.level), last, POLICY, lambda _: scenario.promoted, stop, begin
    )
    others = {
        rule: tuple(
            day - begin
            for day in baseline_through(
                World(seed, scenario.plant, scenario.level), last, verdict, POLICY.reference_days
            )
        )
        for rule, verdict in (RULES if seed < RULE_WORLDS else {}).items()
    }
    return Outcome(name, tuple(day - begin for day in life.retrains), others, life.states[-1], scenario.days)


def simulate(scenarios: dict[str, Scenario], workers: int) -> dict[str, list[Outcome]]:
    """Every world of every scenario."""
    tasks = [(name, scenario, seed) for name, scenario in scenarios.items() for seed in range(scenario.runs)]
    told, found = Progress("synthetic worlds"), dict[str, list[Outcome]]()
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for done, outcome in enumerate(pool.map(one, tasks) if pool else map(one, tasks), start=1):
            told(done, len(tasks))
            found.setdefault(outcome.scenario, []).append(outcome)
    return found


def delays(outcomes: Iterable[Outcome]) -> list[int | None]:
    """Checks of shifted days until the first retrain, 1 for the first such day; None where none came."""
    return [next((day + 1 for day in outcome.policy if day >= 0), None) for outcome in outcomes]


def synthetic_figures(found: dict[str, list[Outcome]]) -> dict[str, float]:
    """The figures that the issue names."""
    return {
        "triggers_no_drift_365d": float(max(len(each.policy) for each in found["no drift"])),
        "triggers_no_drift_365d_mean": float(np.mean([len(each.policy) for each in found["no drift"]])),
        "planted_caught_4d": caught(found["sudden"]),
        "planted_caught_4d_louder_days": caught(found["sudden, louder days"]),
        "unlearnable_retrains": float(max(len(each.policy) for each in found["unlearnable"])),
        "unlearnable_open": float(np.mean([each.last_state == "OPEN" for each in found["unlearnable"]])),
        "seasonal_triggers": float(sum(len(each.policy) for each in found["weekly wave"])),
        "seasonal_triggers_same_worlds_no_wave": without_wave(found),
        "broken_feed_retrains": float(
            sum(day >= 0 for name in ("broken feed", "stuck feed") for each in found[name] for day in each.policy)
        ),
    }


def without_wave(found: dict[str, list[Outcome]]) -> float:
    """The retrains of the wave's worlds, in as many days, had they no wave: what the rest of these worlds asks for."""
    pairs = zip(found["weekly wave"], found["no drift"], strict=False)
    return float(sum(day < wave.days for wave, calm in pairs for day in calm.policy))


def caught(outcomes: list[Outcome]) -> float:
    """The share of worlds whose planted shift was answered in time."""
    return float(np.mean([delay is not None and delay <= IN_TIME for delay in delays(outcomes)]))


def show(found: dict[str, list[Outcome]]) -> None:
    """A table per scenario: retrains a month by rule, false and missed triggers, and the delays."""
    columns = ("worlds", "policy", *RULES, "daily", "false", "missed")
    print(f"\n{'retrains per 30 days':<22}" + "".join(f"{name:>19}" for name in columns))
    for name, outcomes in found.items():
        months = sum(outcome.days for outcome in outcomes) / MONTH
        after = [sum(day >= 0 for day in outcome.policy) for outcome in outcomes]
        expected = name in EXPECTED
        false = sum(day < 0 for outcome in outcomes for day in outcome.policy) + (0 if expected else sum(after))
        missed = sum(not number for number in after) if expected else 0
        rates = [sum(after) / months]
        ruled = [each for each in outcomes if each.rules]
        spans = sum(outcome.days for outcome in ruled) / MONTH
        rates += [sum(day >= 0 for each in ruled for day in each.rules[rule]) / spans for rule in RULES]
        print(
            f"{name:<22}{len(outcomes):>19}"
            + "".join(f"{rate:>19.2f}" for rate in (*rates, float(MONTH)))
            + f"{false:>19}{missed:>19}"
        )
    print("(the policy's runs of sudden, gradual, one feature and label only end with the first retrain)\n")
    for name in ("sudden", "sudden, louder days", "gradual", "label only"):
        counted = Counter(delays(found[name]))
        known = sorted((delay, number) for delay, number in counted.items() if delay is not None)
        words = ", ".join(f"{delay} d: {number}" for delay, number in known)
        print(f"delay of '{name}': {words}{f', never: {counted[None]}' if counted[None] else ''}")


# --- flights -----------------------------------------------------------------------------------------------------------


def flights_figures(folder: Path, last: dt.date, workers: int) -> dict[str, float]:
    """The policy on real flights, beside a calendar with as many retrains, one each day, and none."""
    dataset, kept = year(folder), folder / "fits"
    fits.train_all(dataset, kept, last, workers, Progress("fits"))
    data = fits.Flights(dataset, kept)
    policy = DriftPolicy(retrain_cost=flights.RETRAIN_COST)
    run = flights.policy_run(data, policy, last, Progress("policy"))
    fixed = flights.fixed_psi_run(data, last, Progress("fixed PSI"))
    for day, decision in run.asked:
        print(
            f"{day} {decision.cause}: {'; '.join(decision.reasons[:2])}{'' if day in run.live else ' (not promoted)'}"
        )
    states = Counter(decision.state for decision in run.decisions)
    print(f"states: {dict(states)}\n{run.precision}\n")
    drift_only = flights.policy_run(data, DriftPolicy(), last, Progress("policy without staleness"))
    every = list(fits.days(fits.START, last))
    return {
        "flights_logloss_policy": flights.served(data, run.live, last),
        "flights_logloss_calendar": flights.served(data, flights.evenly(len(run.asked), last), last),
        "flights_logloss_daily": flights.served(data, every, last),
        "flights_logloss_never": flights.served(data, [], last),
        "flights_logloss_psi": flights.served(data, fixed, last),
        "flights_retrains": float(len(run.asked)),
        "flights_retrains_psi": float(len(fixed)),
        "flights_logloss_drift_only": flights.served(data, drift_only.live, last),
        "flights_logloss_drift_only_calendar": flights.served(data, flights.evenly(len(drift_only.asked), last), last),
        "flights_retrains_drift_only": float(len(drift_only.asked)),
    }


def quick() -> dict[str, Scenario]:
    """Every scenario in one or two short worlds: that it runs, not how good it is."""
    return {
        name: dataclasses.replace(each, days=min(each.days, 6), runs=2 if name == "sudden" else 1)
        for name, each in SCENARIOS.items()
    }


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """What may be asked for."""
    options = parser("drift_policy")
    options.add_argument("--quick", action="store_true", help="a few short worlds, no flights: a smoke test")
    options.add_argument("--only", choices=("synthetic", "flights"), help="one half")
    options.add_argument("--folder", type=Path, default=Path("var/drift-year"), help="where the year and its fits lie")
    options.add_argument("--workers", type=int, default=1)
    return options.parse_args(given)


def main(given: list[str] | None = None) -> dict[str, float]:
    """Both halves."""
    asked = arguments(given)
    figures: dict[str, float] = {}
    if asked.only != "flights":
        found = simulate(quick() if asked.quick else SCENARIOS, asked.workers)
        show(found)
        figures |= synthetic_figures(found)
    if asked.only != "synthetic" and not asked.quick:
        figures |= flights_figures(asked.folder, fits.END, asked.workers)
    report("drift_policy", figures, {key: text for key, text in TARGETS.items() if key in figures}, asked)
    return figures


if __name__ == "__main__":
    main()
