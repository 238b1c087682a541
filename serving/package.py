"""Puts model, engine, signature, golden requests and evidence into one artifact; its parity with torch is decided here (G7)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx

from artifacts.refs import Ref, file_digest
from artifacts.step import DataFault, progress, step
from artifacts.store import Artifact, Draft, publish, read_ref
from serving import parity
from serving.candidates import Labelled, Proof, try_engines
from serving.contract import Golden, PackageContent, PackageRef, PackageSpec
from serving.engine_contract import EngineName, EngineTable, ParityPolicy
from serving.engines.catalogue import kind_of
from serving.engines.interface import Engine, Sources, Unsupported, run_all
from serving.parity import ParityRows
from serving.repository import GraphDescription, TensorDescription
from training.contract import Signature
from training.data import Encoded, encoded
from training.data import read_rows as read_dataset

KIND = "package"
MODEL, DATA = "model.onnx", "model.onnx.data"
SIGNATURE, GOLDEN, CONTENT, ENGINES = "signature.json", "golden.json", "package.json", "engines.json"


def package(spec: PackageSpec) -> PackageRef:
    """Makes the servable version of a final fit; DataFault when a digest does not match or parity fails."""
    if problems := inconsistent(spec):
        raise DataFault(problems)
    exported = read_ref(spec.onnx)
    path = exported.file(MODEL)
    if (found := file_digest(path)) != spec.onnx.onnx_digest:
        raise DataFault([f"{spec.onnx.uri}: {MODEL}: digest is {found}, the reference says {spec.onnx.onnx_digest}"])
    if problems := unservable(describe(path), spec.onnx.signature):
        raise DataFault([f"{spec.onnx.uri}: {MODEL}: {problem}" for problem in problems])
    max_batch = spec.onnx.signature.max_batch
    labelled, calibration = labelled_rows(spec)
    proof = Proof(parity.read_rows(exported.file("parity.npz")), labelled, spec.parity)
    with publish(spec.output, KIND) as draft:
        for source in graph_files(exported):
            shutil.copyfile(source, draft.path / source.name)
        sources = Sources(draft.path / MODEL, calibration.numeric, calibration.categorical, max_batch)
        try:
            tried = try_engines(sources, proof, spec.serving.engines)
        except DataFault as error:
            raise DataFault([f"{spec.onnx.uri}: {problem}" for problem in error.problems]) from error
        row = tried.table.row(tried.table.chosen)
        if row is None or row.parity is None:
            raise RuntimeError(f"{tried.table.chosen} was chosen without evidence")
        content = PackageContent(
            model=spec.onnx.model,
            training_key=spec.onnx.training_key,
            partition=spec.partition,
            onnx=spec.onnx,
            onnx_digest=spec.onnx.onnx_digest,
            dataset_digest=spec.onnx.dataset_digest,
            final=spec.final,
            evaluation=spec.evaluation,
            verdicts=(*spec.verdicts, row.parity),
            parity=row.parity,
            serving=spec.serving,
        )
        progress(0.9, "writing the package")
        keep_only(draft.path, {MODEL, DATA, *row.files})
        (draft.path / ENGINES).write_text(tried.table.model_dump_json(indent=1) + "\n", encoding="utf-8")
        write(draft, content, golden(tried.chosen, proof.rows, max_batch, spec.parity))
    return reference(spec.output, draft, content)


def graph_files(exported: Artifact) -> list[Path]:
    """The files of an exported graph: the graph, and its weights where they lie beside it."""
    names = {entry.path for entry in exported.manifest.files}
    return [exported.file(name) for name in (MODEL, DATA) if name in names]


def keep_only(folder: Path, names: set[str]) -> None:
    """Removes the files of engines that were tried and not chosen."""
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()


def labelled_rows(spec: PackageSpec) -> tuple[Labelled, Encoded]:
    """Rows of the evaluation window (a seeded sample of many), and a seeded sample of the training rows before it."""
    final, policy, signature = spec.final, spec.serving.engines, spec.onnx.signature
    columns = [*signature.numeric, *(found.name for found in signature.categorical)]
    rows = read_dataset(final.dataset, columns, final.task)
    window = encoded(rows.between(spec.evaluation.test_first, spec.evaluation.test_last, "test"), signature)
    learnt = encoded(rows.between(final.dataset.first, final.train_last, "training"), signature)
    generator = np.random.default_rng(policy.seed)
    tested = generator.permutation(len(window))[: policy.metric_rows]
    calibrated = generator.permutation(len(learnt))[: policy.calibration_rows]
    labelled = Labelled(
        window.numeric[tested], window.categorical[tested], window.label[tested].astype(np.float64), final.task
    )
    return labelled, Encoded(learnt.numeric[calibrated], learnt.categorical[calibrated], learnt.label[calibrated])


def inconsistent(spec: PackageSpec) -> list[str]:
    """Where the parts of a package do not belong together."""
    exported, final = spec.onnx, spec.final
    checks = {
        f"onnx.fit_digest is {exported.fit_digest}, the final fit is {final.digest}": exported.fit_digest
        != final.digest,
        f"onnx.dataset_digest is {exported.dataset_digest}, the final fit used {final.dataset.digest}": (
            exported.dataset_digest != final.dataset.digest
        ),
        f"final.fit is '{final.fit}'; only a final fit is served": final.fit != "final",
        f"serving.task is '{spec.serving.task}', the final fit is a {final.task}": spec.serving.task != final.task,
        "training keys of onnx, final and evaluation differ": len({
            exported.training_key,
            final.training_key,
            spec.evaluation.training_key,
        })
        != 1,
        f"partition is {spec.partition}, the dataset is for {final.dataset.partition}": spec.partition
        != final.dataset.partition,
    }
    return [f"package: {text}; pass the references of one version" for text, wrong in checks.items() if wrong]


def describe(path: Path) -> GraphDescription:
    """What an ONNX graph says of its inputs and outputs."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return GraphDescription(
        inputs=tuple(_tensor(value) for value in graph.input if value.name not in weights),
        outputs=tuple(_tensor(value) for value in graph.output),
    )


def _tensor(value: onnx.ValueInfoProto) -> TensorDescription:
    tensor = value.type.tensor_type
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    dtype = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    return TensorDescription(name=value.name, dtype=dtype, dims=dims)


def unservable(graph: GraphDescription, signature: Signature) -> list[str]:
    """How a graph differs from its signature; an empty list when they fit."""
    wanted = {"numeric": ("float32", len(signature.numeric)), "categorical": ("int64", len(signature.categorical))}
    wanted = {name: kind for name, kind in wanted.items() if kind[1]}
    problems = []
    if {tensor.name for tensor in graph.inputs} != set(wanted):
        problems.append(f"inputs are {[tensor.name for tensor in graph.inputs]}, the signature says {sorted(wanted)}")
    for tensor in graph.inputs:
        if tensor.name in wanted and (tensor.dtype, *tensor.dims) != (
            wanted[tensor.name][0],
            None,
            wanted[tensor.name][1],
        ):
            problems.append(
                f"input '{tensor.name}' is {tensor.dtype} {tensor.dims}, the signature says {wanted[tensor.name]}"
            )
    outputs = [(tensor.name, tensor.dtype, tensor.dims) for tensor in graph.outputs]
    if outputs != [("score", "float32", (None, 1))]:
        problems.append(f"outputs are {outputs}, wanted is one 'score' float32 [batch, 1]")
    return problems


def golden(engine: Engine, rows: ParityRows, max_batch: int, policy: ParityPolicy) -> Golden:
    """Golden requests at batch 1, preferred and max, over the parity rows, with this engine's own scores."""
    count = len(rows.score)
    batches = [
        *[1] * policy.golden_single,
        *[min(policy.preferred_batch, max_batch)] * policy.golden_preferred,
        *[max_batch] * policy.golden_max,
    ]
    requests, start = [], 0
    for batch in batches:  # rows follow each other, so that together the requests visit as many as they can
        requests.append(tuple((start + place) % count for place in range(batch)))
        start += batch
    used = sorted({row for request in requests for row in request})
    place = {row: number for number, row in enumerate(used)}
    numeric, categorical = rows.numeric[used], rows.categorical[used]
    score = run_all(engine, numeric, categorical, max_batch)
    return Golden(
        numeric=tuple(tuple(float(value) for value in row) for row in numeric),
        categorical=tuple(tuple(int(code) for code in row) for row in categorical),
        score=tuple(float(value) for value in score),
        requests=tuple(tuple(place[row] for row in request) for request in requests),
    )


def golden_tensors(found: Golden) -> ParityRows:
    """The rows of golden requests as tensors."""
    count = len(found.score)
    numeric = np.array(found.numeric).astype(np.float32).reshape(count, -1)
    categorical = np.array(found.categorical, dtype=np.int64).reshape(count, -1)
    return ParityRows(numeric, categorical, np.array(found.score, dtype=np.float32), count)


def write(draft: Draft, content: PackageContent, requests: Golden) -> None:
    """Writes what a package says into a draft that has its graph, and what its reference needs into the manifest's facts."""
    for name, value in ((SIGNATURE, content.onnx.signature), (GOLDEN, requests), (CONTENT, content)):
        (draft.path / name).write_text(value.model_dump_json(indent=1) + "\n", encoding="utf-8")
    draft.facts |= facts(content)


def facts(content: PackageContent) -> dict[str, object]:
    """The fields of a ``PackageRef`` beside URI and digest; ``PackageRef(uri=, digest=, **manifest.facts)`` gives it back."""
    wanted = set(PackageRef.model_fields) - set(Ref.model_fields) - {"signature"}
    return {
        **content.model_dump(mode="json", include=wanted),
        "signature": content.onnx.signature.model_dump(mode="json"),
    }


def reference(uri: str, draft: Draft, content: PackageContent) -> PackageRef:
    """The reference of a package that has just been published."""
    if draft.manifest is None:
        raise RuntimeError(f"{uri} has not been published")
    return PackageRef.model_validate({"uri": uri, "digest": draft.manifest.digest, **facts(content)})


def read_content(artifact: Artifact) -> PackageContent:
    """What a package says of itself."""
    return PackageContent.model_validate_json(artifact.file(CONTENT).read_bytes())


def read_engines(artifact: Artifact) -> EngineTable:
    """The table of engines; a package without one is served as it was exported."""
    if ENGINES not in {entry.path for entry in artifact.manifest.files}:
        return EngineTable()
    return EngineTable.model_validate_json(artifact.file(ENGINES).read_bytes())


def read_golden(artifact: Artifact) -> Golden:
    """A package's golden requests."""
    return Golden.model_validate_json(artifact.file(GOLDEN).read_bytes())


def require_digest(artifact: Artifact, ref: PackageRef) -> Path:
    """The package's ``model.onnx``, checked against the reference; DataFault when it is another."""
    path = artifact.file(MODEL)
    if (found := file_digest(path)) != ref.onnx_digest:
        raise DataFault([f"{ref.uri}: {MODEL}: digest is {found}, the reference says {ref.onnx_digest}"])
    return path


def engine_file(artifact: Artifact, ref: PackageRef) -> tuple[EngineName, Path]:
    """The chosen engine of a package and its file; DataFault when a file is not what the reference or the table says."""
    model = require_digest(artifact, ref)
    table = read_engines(artifact)
    row = table.row(table.chosen)
    path = model
    for name, digest in (row.files if row else {}).items():
        path = artifact.file(name)
        if (found := file_digest(path)) != digest:
            raise DataFault([f"{ref.uri}: {name}: digest is {found}, the table of engines says {digest}"])
    return table.chosen, path


def open_engine(artifact: Artifact, ref: PackageRef) -> Engine:
    """The chosen engine, in process; DataFault when this machine cannot load it."""
    name, path = engine_file(artifact, ref)
    try:
        return kind_of(name).load(path)
    except Unsupported as error:
        raise DataFault([f"{ref.uri}: engine '{name}': {error}; install it, or package the version again"]) from error


if __name__ == "__main__":
    sys.exit(step(package, PackageSpec))
