"""Makes a package that is consistent in itself and wrong, for drills: release evidence has to end it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from artifacts.refs import file_digest, key_digest
from artifacts.step import DataFault, step
from artifacts.store import publish, read_ref
from serving import gate_parity, parity
from serving.contract import PackageContent, PackageRef, ScrambleSpec
from serving.engine_contract import ParityPolicy
from serving.engines.interface import run_all
from serving.engines.onnxruntime import load
from serving.package import KIND, MODEL, golden, read_content, reference, require_digest, write

LAYERS = {"Gemm", "MatMul"}


def scramble(spec: ScrambleSpec) -> PackageRef:
    """A package whose last layer is shuffled, with flipped signs; digests, parity and golden requests are its own.

    It has a training key of its own, so it registers as a version of its own; its lineage names the original.
    """
    artifact = read_ref(spec.package)
    content = read_content(artifact)
    policy, max_batch = ParityPolicy(), spec.package.signature.max_batch
    with publish(spec.output, KIND) as draft:
        path = draft.path / MODEL
        write_scrambled(require_digest(artifact, spec.package), path, spec)
        engine = load(path)
        rows = parity.read_rows(read_ref(content.onnx).file("parity.npz"))
        rows = rows._replace(score=run_all(engine, rows.numeric, rows.categorical, max_batch))
        verdict = gate_parity.parity(parity.compare(engine, rows, max_batch, policy), max_batch, policy)
        changed = content.model_copy(
            update={
                "training_key": key_digest({"scrambled": content.training_key, "seed": spec.seed}),
                "onnx_digest": file_digest(path),
                "parity": verdict,
                "scrambled_seed": spec.seed,
            }
        )
        write(draft, PackageContent.model_validate(changed), golden(engine, rows, max_batch, policy))
    return reference(spec.output, draft, changed)


def write_scrambled(source: Path, target: Path, spec: ScrambleSpec) -> None:
    """Copies a graph with the weights of its last layer permuted, some signs flipped, and scaled."""
    graph = onnx.load(source)
    weights = {tensor.name: tensor for tensor in graph.graph.initializer}
    layers = [node for node in graph.graph.node if node.op_type in LAYERS and node.input[1] in weights]
    if not layers:
        raise DataFault([f"{spec.package.uri}: model.onnx has no layer with weights ({sorted(LAYERS)}) to scramble"])
    tensor = weights[layers[-1].input[1]]
    values = numpy_helper.to_array(tensor)
    generator = np.random.default_rng(spec.seed)
    shuffled = generator.permutation(values.reshape(-1)) * generator.choice([-1.0, 1.0], values.size) * spec.scale
    tensor.CopyFrom(numpy_helper.from_array(shuffled.reshape(values.shape).astype(values.dtype), tensor.name))
    onnx.save(graph, target)


if __name__ == "__main__":
    sys.exit(step(scramble, ScrambleSpec))
