"""Builds every engine that this machine supports beside a graph, proves it, times it, and chooses by the table."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from artifacts.refs import file_digest
from artifacts.step import DataFault, progress
from serving import choice, gate_parity, parity
from serving.engine_contract import PLAIN, EngineName, EnginePolicy, EngineRow, EngineTable, ParityPolicy, Precision
from serving.engines.catalogue import kind_of
from serving.engines.interface import Engine, Kind, Sources, Unsupported, run_all
from serving.parity import ParityRows
from training.measures import Task
from training.scoring import auc, row_losses

NameT = TypeVar("NameT", bound=str)


@dataclass(frozen=True)
class Labelled:
    """Encoded rows with labels [B]: numeric float32 [B, N], categorical int64 [B, M]."""

    numeric: npt.NDArray[np.float32]
    categorical: npt.NDArray[np.int64]
    label: npt.NDArray[np.float64]
    task: Task


@dataclass(frozen=True)
class Proof:
    """What engines are held against: torch's answers, and labelled rows for what fewer bits cost."""

    rows: ParityRows
    labelled: Labelled
    policy: ParityPolicy


@dataclass(frozen=True)
class Tried:
    """The table, and the engines that passed, loaded."""

    table: EngineTable
    engines: Mapping[EngineName, Engine]

    @property
    def chosen(self) -> Engine:
        """The engine that serves."""
        return self.engines[self.table.chosen]


def try_engines(sources: Sources, proof: Proof, policy: EnginePolicy) -> Tried:
    """The table of all candidates; DataFault with a line per engine when none passes."""
    rows: dict[EngineName, EngineRow] = {}
    engines: dict[EngineName, Engine] = {}
    plain = kind_of(PLAIN).load(sources.model)
    for place, name in enumerate(policy.candidates):
        progress(0.2 + 0.5 * place / len(policy.candidates), f"building and proving {name}")
        try:
            kind = kind_of(name)
            kind.build(sources)
            engine = kind.load(sources.model.with_name(kind.file))
        except Unsupported as error:
            rows[name] = EngineRow(engine=name, precision=_precision(name), status="not built", reason=str(error))
            continue
        rows[name] = _proven(kind, engine, plain, sources, proof)
        if rows[name].status == "passed":
            engines[name] = engine
    if not engines:
        raise DataFault([f"{name}: {row.reason}; export the fit again" for name, row in rows.items()])
    progress(0.7, "timing the engines that passed")
    timed = time_engines(engines, proof.rows, sources.max_batch, policy)
    table = [row.model_copy(update={"milliseconds": timed.get(name, {})}) for name, row in rows.items()]
    chosen, reason = choice.choose(table, policy)
    return Tried(EngineTable(chosen=chosen, reason=reason, machine=machine(), rows=tuple(table)), engines)


def _precision(name: EngineName) -> Precision:
    return "int8" if "int8" in name else "fp32"


def _proven(kind: Kind, engine: Engine, plain: Engine, sources: Sources, proof: Proof) -> EngineRow:
    """An engine's row: parity with torch, and what it costs in quality where it has fewer bits."""
    path = sources.model.with_name(kind.file)
    loss = None
    if kind.precision != "fp32":
        loss = metric_loss(engine, plain, proof.labelled, sources.max_batch)
    found = parity.compare(engine, proof.rows, sources.max_batch, proof.policy)
    verdict = gate_parity.parity(found, sources.max_batch, proof.policy, kind.precision, loss)
    return EngineRow(
        engine=kind.name,
        precision=kind.precision,
        status="passed" if verdict.status == "pass" else "failed",
        reason=verdict.reason if verdict.status == "pass" else f"{verdict.gate}: {verdict.reason}",
        files={kind.file: file_digest(path)},
        key=kind.key(path) if kind.key else None,
        versions=dict(kind.versions),
        parity=verdict,
        deciding_rise=loss.deciding_rise if loss else None,
        auc_loss=loss.auc_loss if loss else None,
    )


def metric_loss(engine: Engine, plain: Engine, rows: Labelled, batch: int) -> gate_parity.MetricLoss:
    """The rise of the deciding loss, and the loss of AUC, over the same model in fp32 on the same rows."""
    ours, theirs = (run_all(one, rows.numeric, rows.categorical, batch).astype(np.float64) for one in (engine, plain))
    mine, base = (float(row_losses(answer, rows.label, rows.task).mean()) for answer in (ours, theirs))
    rise = (mine - base) / base if base > 0 else float("nan")
    if rows.task == "regression":
        return gate_parity.MetricLoss(deciding_rise=rise)
    return gate_parity.MetricLoss(deciding_rise=rise, auc_loss=auc(theirs, rows.label) - auc(ours, rows.label))


def time_engines(
    engines: Mapping[NameT, Engine], rows: ParityRows, max_batch: int, policy: EnginePolicy
) -> dict[NameT, dict[int, float]]:
    """Median milliseconds of one call per engine and batch size.

    The engines take turns within each round, in an order drawn anew, so that what else the machine does meets them all.
    """
    generator = np.random.default_rng(policy.seed)
    found: dict[NameT, dict[int, float]] = {name: {} for name in engines}
    for size in sorted({min(size, max_batch) for size in policy.timed_batches}):
        order = np.arange(size) % rows.real
        numeric, categorical = rows.numeric[order], rows.categorical[order]
        taken: dict[NameT, list[float]] = {name: [] for name in engines}
        for _ in range(policy.rounds):
            for name in random_order(list(engines), generator):
                taken[name].append(_seconds(engines[name], numeric, categorical, policy.round_seconds))
        found |= {name: found[name] | {size: 1e3 * float(np.median(s))} for name, s in taken.items() if s}
    return found


def random_order(names: list[NameT], generator: np.random.Generator) -> list[NameT]:
    """The same names in an order drawn anew."""
    return [names[place] for place in generator.permutation(len(names))]


def _seconds(engine: Engine, numeric: np.ndarray, categorical: np.ndarray, least: float) -> float:
    """Median seconds of one call, over calls that together take ``least`` seconds; the first is a warm-up."""
    engine.run(numeric, categorical)
    calls: list[float] = []
    while sum(calls) < least:
        began = time.perf_counter()
        engine.run(numeric, categorical)
        calls.append(time.perf_counter() - began)
    return float(np.median(calls))


def machine() -> str:
    """The processor that engines were timed on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} processors, one thread"
