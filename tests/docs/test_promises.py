"""Every requirement that is listed here is held by at least one test, which names it: ``@pytest.mark.covers("field-reports 65")``.

``field-reports N`` is a failure that people have met with Airflow (26 to 43), Spark (44 to 51), Feast (53 to 63), Great
Expectations (65 to 72), distributed training (82 to 92), MLflow's registry (74 to 81), exports (93 to 98), Triton (100 to 108) or drift monitoring (109 to 120);
``decisions 3.N`` is a rule of point-in-time correctness, ``drift input N`` something bad that a check is given, and ``bad
evidence`` what a gate or a promotion must not fall for. A module can carry the mark for all of its tests in ``pytestmark``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

PROMISES = {
    "field-reports 1": "a log stream that was rotated away holds no task",
    "field-reports 2": "a log that breaks off fails nothing",
    "field-reports 3": "a result in the store is success, also when the pod is gone",
    "field-reports 4": "why a step failed does not depend on its log; each line is copied once",
    "field-reports 5": "the wait for a pod's start ends in time, whatever its init containers do",
    "field-reports 7": "a create whose answer is lost makes one pod",
    "field-reports 8": "a pod whose task has ended is removed",
    "field-reports 10": "a pod that vanished is replaced without a retry of the task",
    "field-reports 11": "the step's own error comes first",
    "field-reports 12": "a clean-up that is refused takes no result away",
    "field-reports 13": "no sidecar of ours, and none is killed",
    "field-reports 15": "a sidecar that stays is not waited for",
    "field-reports 16": "an evicted pod is said to be evicted",
    "field-reports 18": "a pod outlives its worker, and not the end of its task",
    "field-reports 19": "the next try attaches to the pod that runs",
    "field-reports 20": "other pods with the same labels confuse nobody; a cluster that is away starts no second pod",
    "field-reports 21": "the pod of a killed worker is attached to",
    "field-reports 22": "memory that ran out is said, with the limit",
    "field-reports 23": "why a pod died is read from the step's own container",
    "field-reports 27": "events that arrive during a run are not lost: what is left is worked out from stored state",
    "field-reports 29": "which evidence caused which run is in the ledger, however events are merged",
    "field-reports 30": "a daily retrain that nobody has decided for 26 hours is an alarm",
    "field-reports 35": "nothing reads a logical date; one resolver says which partition a run is for",
    "field-reports 26": "two runs of one event train one version",
    "field-reports 32": "a partition of the past is named, and never triggers a release",
    "field-reports 34": "a run too many finds the work done",
    "field-reports 36": "the partition that was typed is the one that is trained, and is said before any work",
    "field-reports 37": "no run asks Airflow how the run before it went",
    "field-reports 39": "a run that is cleared finds what it has made, and goes on",
    "field-reports 40": "work runs outside its worker, and the next try adopts it",
    "field-reports 42": "backfills have a pool of their own, the daily run a slot, and each gap is claimed first",
    "field-reports 43": "a day that failed stops no later one, and is filled afterwards",
    "field-reports 44": "a Spark job that died is never a success: a manifest with row counts is",
    "field-reports 46": "a task ends when its job ends",
    "field-reports 48": "killing a task ends its driver",
    "field-reports 49": "the session is always stopped",
    "field-reports 51": "writing one partition leaves the others as they are, byte by byte",
    "field-reports 53": "no value that was written after a row's time reaches the row",
    "field-reports 54": "rows with equal key and time all stay: rows out = rows in",
    "field-reports 55": "several entities never drop or double a row",
    "field-reports 57": "yesterday's training set can be made again after a restatement",
    "field-reports 58": "an expired value is not served as present",
    "field-reports 59": "late data reaches the online store",
    "field-reports 61": "times are UTC and written with Z",
    "field-reports 62": "a timestamp of text is refused by name",
    "field-reports 63": "two writers never lose each other's registry",
    "field-reports 65": "an expectation that did not come back has failed",
    "field-reports 66": "a missing column is a failure that names the column",
    "field-reports 68": "an exception in an executor is one failure, counted by id",
    "field-reports 70": "a data frame is checked again without a saved checkpoint",
    "field-reports 71": "nothing of a check has to be saved or pickled",
    "field-reports 72": "few full scans, a time budget, a sample of very large tables",
    "field-reports 109": "what counts as drift does not depend on how many rows there are",
    "field-reports 110": "how much is sampled is ours to set, with a seed",
    "field-reports 111": "too few rows say nothing",
    "field-reports 113": "a score that is no number is an error, never a pass",
    "field-reports 115": "a null in one column takes no row from another",
    "field-reports 118": "the method is pinned for every kind of feature, and the installed version knows it",
    "field-reports 120": "a check leaves files of its own; nothing grows from check to check",
    "drift input 1": "a reference that is gone or was altered is refused",
    "drift input 2": "a schema that changed since the reference is said column by column",
    "drift input 3": "a feature that is all null or constant is a broken feed, no drift",
    "drift input 4": "a feature of new categories only is drift of that feature alone",
    "drift input 5": "requests that were logged twice count once",
    "drift input 6": "a clock that goes back is refused by name",
    "drift input 7": "labels of unknown requests are counted and left out",
    "field-reports 82": "a rank that makes no step for too long ends the fit, with who hangs",
    "field-reports 84": "a collective that nobody answers ends within a bound that we set",
    "field-reports 85": "when one rank is gone the others leave at once",
    "field-reports 86": "who does not come, or comes late, is named before the first step",
    "field-reports 89": "what ranks decide is reduced first, and rank 0's word goes for all",
    "field-reports 90": "a gang starts whole or gives its GPUs back",
    "field-reports 92": "a queued job is queued: neither running nor paid for",
    "field-reports 93": "an exported graph answers at batch 1, 2, 7 and the largest; a frozen batch is refused",
    "field-reports 94": "a graph is traced with batch 2 and asked at batch 1",
    "field-reports 96": "nothing is exported in training mode, and every export is compared with torch",
    "field-reports 97": "fewer bits are compared with the fp32 source, by what they cost on labelled rows",
    "field-reports 98": "a TensorRT plan is keyed by all that it depends on and refused on another card",
    "field-reports 100": "the version in front answers all the while that another is loaded beside it",
    "field-reports 101": "every version has a name of its own; nothing is reloaded in place",
    "field-reports 124": "without traffic logged requests are replayed, and without evidence nothing is promoted",
    "field-reports 122": "traffic is held against its weights: a version without weight answers nobody",
    "field-reports 103": "explicit mode, and a folder that is complete before it is loaded",
    "field-reports 105": "the configuration comes from the graph; batching needs a free first dimension everywhere",
    "field-reports 108": "a version is loaded in a throw-away server before the live one sees it",
    "field-reports 74": "writers at the same time agree on one version: look up, create, try again with jitter",
    "field-reports 76": "an alias is resolved once to a version and its digest, never 'latest'",
    "field-reports 78": "who, why, from what, to what and on which evidence, for each promotion",
    "field-reports 79": "the previous version comes back with one command",
    "field-reports 81": "one training has one version, whoever registers it and how often",
    "bad evidence: no positives": "a window of one class judges nobody",
    "bad evidence: equal scores": "a constant answer has no order, and the floor refuses it",
    "bad evidence: NaN scores": "what is not finite never passes",
    "bad evidence: new slice": "a value that the champion never saw is held against the base rate",
    "bad evidence: champion gone": "a champion that cannot be opened is no first model",
    "bad evidence: alias by hand": "an alias that was moved by hand is found, named and moved back",
    "bad evidence: two promotions": "of two promotions at once one goes first, and the other decides again",
    "bad evidence: clock skew": "no clock makes an older partition the newer one",
    "decisions 3.1": "usable at T: event_time <= T - delay, available_time <= T, event_time > T - ttl",
    "decisions 3.2": "ties: latest event, latest available, then a stable key",
    "decisions 3.3": "only labels known by the cut-off; the horizon embargoed; no negative before its window closes",
    "decisions 3.4": "rows out = rows in, by unique row id",
    "decisions 3.5": "UTC only, through the day of a clock change",
    "decisions 3.6": "no leak: sentinels change no byte, no feature or group gives the label away",
    "decisions 3.7": "same definitions, as_of and entities: same bytes",
    "decisions 3.8": "train < gap < validation < gap < test, gap >= label horizon",
    "decisions 3.9": "online = offline",
    "decisions 3.10": "the reader returns value, age and status",
    "decisions 3.11": "materialise half-open windows with lateness, never an older event over a newer one",
    "decisions 3.12": "one ttl for training and serving",
}


def marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(test, promise) for each mark in a test module, on a test, on its class or on the module."""
    of_module = [promise for node in tree.body if _assigns_marks(node) for promise in _named(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            of_test = [promise for decorator in node.decorator_list for promise in _named(decorator)]
            yield from ((node.name, promise) for promise in (*of_module, *of_test))


def _assigns_marks(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def _named(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "covers":
            yield from (argument.value for argument in call.args if isinstance(argument, ast.Constant))


@pytest.fixture(scope="module")
def held() -> dict[str, list[str]]:
    """Promise -> the tests that name it."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, promise in marks(ast.parse(path.read_text())):
            found[promise].append(f"{path.relative_to(TESTS.parent)}::{test}")
    return found


def test_every_promise_is_held_by_a_test(held: dict[str, list[str]]) -> None:
    missing = sorted(set(PROMISES) - set(held))
    assert missing == [], "\n".join(f"{name}: {PROMISES[name]}" for name in missing)


def test_every_mark_names_a_promise(held: dict[str, list[str]]) -> None:
    unknown = {promise: tests for promise, tests in held.items() if promise not in PROMISES}
    assert unknown == {}


def test_marks_are_found_on_tests_classes_modules_and_nowhere_else() -> None:
    module = ast.parse(
        "pytestmark = [pytest.mark.spark, pytest.mark.covers('a')]\n"
        "@pytest.mark.covers('b', 'c')\ndef test_x(): ...\n"
        "@pytest.mark.covers('d')\ndef helper(): ...\n"
        "def test_y(): ...\n"
    )
    assert list(marks(module)) == [("test_x", "a"), ("test_x", "b"), ("test_x", "c"), ("test_y", "a")]
