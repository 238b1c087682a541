"""Judges a staged version: the same requests for champion and candidate, in random order, and what both say of labels.

The figures are gathered here; what they mean is decided in ``serving.gate``. Without evidence the answer is
inconclusive, never a pass.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.stats import mannwhitneyu

from artifacts.step import DataFault, progress, step
from artifacts.store import publish, read_ref
from serving import judgement_page, load, pacing
from serving.contract import JudgementRef, JudgeSpec, PackageContent, PackageRef, StageSpec
from serving.engines.interface import Engine, run_all
from serving.gate import Evidence, Labels, Load, Ruling, budget, marginal, quality, rule
from serving.pacing import Answers
from serving.package import engine_file, open_engine, read_content
from serving.triton import Server, connect, stage
from training.contract import Signature, Verdict
from training.data import Rows, read_rows
from training.encoding import encode
from training.measures import DECIDING, Task
from training.scoring import row_losses

KIND = "judgement"
FEATURE = "feature__"
SCATTER_POINTS = 800
LOSSES = frozenset({"loss", "claimed_loss", "champion_loss"})
SAMPLE_STREAM, ORDER_STREAM, QUALITY_STREAM = 1, 2, 3  # one seed, independent random numbers

Floats = npt.NDArray[np.float64]
Table = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Version:
    """One version under judgement: its package, opened and in process."""

    ref: PackageRef
    name: str
    engine: Engine
    content: PackageContent

    def encoded(self, columns: Table) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Rows by the package's own signature."""
        return encode(columns, self.ref.signature)

    def own(self, columns: Table) -> Floats:
        """The package's own scores [B], in process."""
        return run_all(self.engine, *self.encoded(columns), self.ref.signature.max_batch).astype(np.float64)


@dataclass(frozen=True)
class Trial:
    """What was asked and answered: the requests' columns, where they came from, and the answers per version."""

    columns: Table
    source: str
    candidate: Answers
    champion: Answers | None


def judge(spec: JudgeSpec) -> JudgementRef:
    """The evidence of a release and what it says; DataFault when a package or a log is not what its reference says."""
    candidate = open_version(spec.candidate_package, spec.candidate.name)
    champion = _champion(spec)
    for version in filter(None, (candidate, champion)):
        # a server that has restarted since staging is empty: that says nothing of the candidate, so load it again
        stage(StageSpec(package=version.ref, name=version.name, triton=spec.triton))
    progress(0.02, "collecting requests and labelled rows")
    labelled = labelled_rows(spec, candidate, champion)
    labels = label_figures(candidate, champion, labelled)
    refused = bool(quality(labels, spec.policy))  # cheap first: what labels refuse is not asked a single request
    trial = ask(spec, candidate, champion, labelled, rows=0 if refused else spec.policy.requests)
    under_load = None if refused else load_test(spec, candidate, champion, trial.columns)
    slo = candidate.ref.serving.slo
    verdict = budget(under_load, slo.error_rate, spec.policy.load.size_factor) if under_load else None
    evidence = measure(spec, (candidate, champion), trial, labels, labelled, verdict)
    if marginal(evidence, spec.policy):
        more = ask(spec, candidate, champion, labelled, rows=spec.policy.requests, look=1)
        trial = both(trial, more)
        evidence = measure(spec, (candidate, champion), trial, labels, labelled, verdict)
    ruling = rule(evidence, spec.policy)
    return publish_judgement(spec, evidence, ruling, trial, candidate, under_load)


def both(first: Trial, second: Trial) -> Trial:
    """Two trials as one."""
    columns = {name: np.concatenate([values, second.columns[name]]) for name, values in first.columns.items()}
    champion = (
        pacing.together(first.champion, second.champion)
        if first.champion is not None and second.champion is not None
        else None
    )
    return Trial(columns, first.source, pacing.together(first.candidate, second.candidate), champion)


def load_test(spec: JudgeSpec, candidate: Version, champion: Version | None, columns: Table) -> Load:
    """The candidate alone under load (G9), with rows that were asked before, and the sizes of both engines."""
    numeric, categorical = candidate.encoded(columns)
    max_batch = candidate.ref.signature.max_batch
    with connect(spec.triton, spec.policy.request_timeout.total_seconds()) as server:

        def one(batch: int) -> None:
            place = np.arange(batch) % len(numeric)
            server.score(candidate.name, numeric[place], categorical[place])

        found = load.measure(one, server.live, candidate.ref.serving.slo, spec.policy.load, max_batch)
    sizes = [engine_file(read_ref(each.ref), each.ref)[1].stat().st_size for each in (candidate, champion) if each]
    return found.model_copy(update={"bytes": sizes[0], "champion_bytes": sizes[1] if champion else None})


def open_version(ref: PackageRef, name: str) -> Version:
    """A package, its digests checked, its engine loaded."""
    artifact = read_ref(ref)
    return Version(ref, name, open_engine(artifact, ref), read_content(artifact))


def _champion(spec: JudgeSpec) -> Version | None:
    if (spec.champion is None) != (spec.champion_package is None):
        raise DataFault(["judge: champion and champion_package must be given together, or neither"])
    if spec.champion is None or spec.champion_package is None:
        return None
    return open_version(spec.champion_package, spec.champion.name)


def names_of(signature: Signature) -> set[str]:
    """The columns that a signature reads."""
    return {*signature.numeric, *(found.name for found in signature.categorical)}


def needed(candidate: Version, champion: Version | None) -> list[str]:
    """The columns that the versions under judgement read."""
    others = names_of(champion.ref.signature) if champion else set()
    return sorted(names_of(candidate.ref.signature) | others)


def labelled_rows(spec: JudgeSpec, candidate: Version, champion: Version | None) -> Rows:
    """Labelled rows of the candidate's evaluation window, the newest days of its dataset; a seeded sample of many."""
    final, evaluation = candidate.content.final, candidate.content.evaluation
    if spec.final is not None and spec.final.dataset.digest != final.dataset.digest:
        raise DataFault([
            f"judge: final.dataset is {spec.final.dataset.digest}, the package's own is {final.dataset.digest}; give the "
            "candidate's final fit, or leave it out"
        ])
    rows = read_rows(final.dataset, needed(candidate, champion), final.task)
    window = rows.between(evaluation.test_first, evaluation.test_last, "test")
    if len(window) <= spec.policy.quality_rows:
        return window
    chosen = np.random.default_rng((QUALITY_STREAM, spec.seed)).permutation(len(window))[: spec.policy.quality_rows]
    return Rows(
        window.day[chosen], window.label[chosen], {name: values[chosen] for name, values in window.columns.items()}
    )


def requests(spec: JudgeSpec, names: list[str], labelled: Rows, wanted: int) -> tuple[Table, str]:
    """Columns of so many rows: logged ones, newest first, filled up from the dataset; fewer when there are no more."""
    parts: list[Table] = []
    for ref in sorted(spec.predictions, key=lambda found: found.partition, reverse=True):
        path = read_ref(ref).file("predictions.parquet")
        present = set(pq.read_schema(path).names)
        if sum(map(_length, parts)) < wanted and all(FEATURE + name in present for name in names):
            table = pq.read_table(path, columns=[FEATURE + name for name in names])
            parts.append({name: table[FEATURE + name].to_numpy() for name in names})
    logged = sum(map(_length, parts))
    generator = np.random.default_rng((SAMPLE_STREAM, spec.seed))
    if parts and logged >= wanted:
        together = {name: np.concatenate([part[name] for part in parts]) for name in names}
        chosen = generator.permutation(logged)[:wanted]
        return {name: values[chosen] for name, values in together.items()}, "log"
    chosen = generator.permutation(len(labelled))[: wanted - logged]
    parts.append({name: labelled.columns[name][chosen] for name in names})
    return {
        name: np.concatenate([part[name] for part in parts]) for name in names
    }, "log and dataset" if logged else "dataset"


def _length(columns: Table) -> int:
    return len(next(iter(columns.values())))


def ask(
    spec: JudgeSpec, candidate: Version, champion: Version | None, labelled: Rows, *, rows: int, look: int = 0
) -> Trial:
    """Asks all versions: over ``policy.points`` seconds when latency is to be compared, else at the rate of the SLO.

    Each ``look`` has an order of its own.
    """
    columns, source = requests(spec, needed(candidate, champion), labelled, rows)
    rows = _length(columns)
    alone = rows / candidate.ref.serving.slo.requests_per_second
    seconds = min(alone, float(spec.policy.points)) if champion is None else float(spec.policy.points)
    with connect(spec.triton, spec.policy.request_timeout.total_seconds()) as server:
        server.states()  # a server that is down is no verdict on the candidate: TryAgain
        versions = [candidate, *([champion] if champion else [])]
        arms = [_asker(server, version, columns) for version in versions]
        found = pacing.ask_in_random_order(arms, rows, seconds, spec.seed + ORDER_STREAM + look)
    return Trial(columns, source, found[0], found[1] if champion else None)


def _asker(server: Server, version: Version, columns: Table) -> pacing.Ask:
    numeric, categorical = version.encoded(columns)

    def one(row: int) -> float:
        return float(server.score(version.name, numeric[row : row + 1], categorical[row : row + 1])[0])

    return one


def label_figures(candidate: Version, champion: Version | None, labelled: Rows) -> Labels:
    """The packages' deciding figures on labelled rows, in process."""
    task = candidate.content.final.task
    return Labels(
        labelled=len(labelled),
        task=task,
        loss=_loss(candidate.own(labelled.columns), labelled, task),
        claimed_loss=candidate.content.evaluation.final.deciding,
        champion_loss=_loss(champion.own(labelled.columns), labelled, task) if champion else None,
    )


def measure(
    spec: JudgeSpec,
    versions: tuple[Version, Version | None],
    trial: Trial,
    labels: Labels,
    labelled: Rows,
    budget: Verdict | None,
) -> Evidence:
    """The figures that the rules look at."""
    progress(0.92, "comparing scores, labels and latency")
    candidate, champion = versions
    own = candidate.own(trial.columns)
    equal = np.abs(trial.candidate.score - own) <= spec.policy.shadow_tolerance  # NaN is not equal
    figures: dict[str, object] = {
        **labels.model_dump(),
        "budget": budget,
        "candidate": pacing.arm(trial.candidate),
        "equal_share": float(equal.mean()) if len(equal) else None,
    }
    if champion is not None and trial.champion is not None:
        said, other = candidate.own(labelled.columns), champion.own(labelled.columns)
        figures |= {
            "champion": pacing.arm(trial.champion),
            "difference_served": _mean_difference(trial.candidate.score, trial.champion.score),
            "difference_offline": _mean_difference(said, other),
            "latency_p": latency_p(trial.candidate, trial.champion),
        }
    return Evidence.model_validate(figures)


def _loss(score: Floats, labelled: Rows, task: Task) -> float | None:
    return float(row_losses(score, labelled.label.astype(np.float64), task).mean()) if len(labelled) else None


def _mean_difference(ours: Floats, theirs: Floats) -> float | None:
    both = np.isfinite(ours) & np.isfinite(theirs)
    return float(np.abs(ours - theirs)[both].mean()) if both.any() else None


def latency_p(candidate: Answers, champion: Answers) -> dict[str, float]:
    """One-sided Mann-Whitney p values over the one-second points: small when the candidate is slower."""
    ours, theirs = pacing.points(candidate), pacing.points(champion)
    if not len(ours.second) or not len(theirs.second):
        return {}
    pairs = {"p50": (ours.p50_ms, theirs.p50_ms), "p99": (ours.p99_ms, theirs.p99_ms)}
    return {name: float(mannwhitneyu(*pair, alternative="greater").pvalue) for name, pair in pairs.items()}


def figures_of(evidence: Evidence) -> dict[str, float | int | None]:
    """The evidence as flat figures, for the reference and the page; a loss is called by its figure, such as ``log_loss``."""
    field, found = DECIDING[evidence.task].field, dict[str, float | int | None]()
    for key, value in evidence.model_dump(exclude={"task"}).items():
        name = key.removesuffix("loss") + field if key in LOSSES else key
        if name == "budget":
            found |= {f"load_{part}": figure for part, figure in (value or {}).get("figures", {}).items()}
        elif isinstance(value, dict):
            found |= {f"{name}_{part}": figure for part, figure in value.items()}
        elif not (name == "champion" and value is None):
            found[name] = value
    return found


def publish_judgement(
    spec: JudgeSpec, evidence: Evidence, ruling: Ruling, trial: Trial, candidate: Version, under_load: Load | None
) -> JudgementRef:
    """Writes ``judgement.json`` and ``judgement.html`` and returns their reference."""
    kind = "paired replay" if trial.champion is not None else "shadow"
    champion = spec.champion.name if spec.champion else None
    figures = figures_of(evidence)
    shown = {
        "model": spec.model,
        "candidate": spec.candidate.name,
        "champion": champion,
        "kind": kind,
        "status": ruling.status,
        "reasons": ruling.reasons,
        "figures": figures,
    }
    judgement = JudgementRef.model_validate({"uri": spec.output, "digest": spec.candidate.package.digest, **shown})
    title = f"{spec.candidate.name} against {champion}" if champion else f"{spec.candidate.name}, shadow"
    with publish(spec.output, KIND) as draft:
        said = {**json.loads(judgement.model_dump_json(exclude={"uri", "digest"})), "requests_from": trial.source}
        said |= {"load": json.loads(under_load.model_dump_json()) if under_load else None}
        (draft.path / "judgement.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        html = judgement_page.page(title, ruling.status, ruling.reasons, figures, charts(trial, candidate, under_load))
        (draft.path / "judgement.html").write_text(html, encoding="utf-8")
        draft.facts |= {"status": ruling.status, "kind": kind}
    if draft.manifest is None:
        raise RuntimeError(f"{spec.output} has not been published")
    return judgement.model_copy(update={"digest": draft.manifest.digest})


def charts(trial: Trial, candidate: Version, under_load: Load | None) -> list[str]:
    """Latency per second of each version, the candidate's scores against the champion's or its own, latency over throughput."""
    arms = {"candidate": trial.candidate} | ({"champion": trial.champion} if trial.champion else {})
    per_second = {name: pacing.points(answers) for name, answers in arms.items()}
    other = trial.champion.score if trial.champion else candidate.own(trial.columns)
    both = np.flatnonzero(np.isfinite(other) & np.isfinite(trial.candidate.score))[:SCATTER_POINTS]
    pairs = [(float(other[row]), float(trial.candidate.score[row])) for row in both]
    return [
        judgement_page.lines(
            "p50 per second", "ms", {name: found.p50_ms.tolist() for name, found in per_second.items()}
        ),
        judgement_page.lines(
            "p99 per second", "ms", {name: found.p99_ms.tolist() for name, found in per_second.items()}
        ),
        judgement_page.scatter("score: candidate over " + ("champion" if trial.champion else "package"), pairs),
        *([judgement_page.curve(under_load), judgement_page.load_table(under_load)] if under_load else []),
    ]


if __name__ == "__main__":
    sys.exit(step(judge, JudgeSpec))
