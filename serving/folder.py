"""A version's folder in Triton's model repository: written whole from a package, removed whole."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from artifacts.refs import file_digest, join, local_path
from artifacts.step import DataFault
from artifacts.store import Artifact, remove_all, write_bytes
from serving.choice import batching
from serving.contract import StageSpec, TritonServer
from serving.engine_contract import ParityPolicy
from serving.package import DATA, describe, engine_file, read_engines, require_digest
from serving.repository import VERSION, ModelSpec, config_pbtxt
from serving.server_model import TEXT


def publish_folder(spec: StageSpec, artifact: Artifact) -> None:
    """Puts ``<repository>/<name>`` there whole, or finds its own earlier one; another package's is a DataFault."""
    root = local_path(spec.triton.repository)
    model = model_spec(spec, artifact)
    sources = {name: artifact.file(name) for name in model.files}
    try:
        config = config_pbtxt(model, spec.triton.flavour)
    except ValueError as error:
        raise DataFault([f"{spec.package.uri}: {error}"]) from error
    texts = {"config.pbtxt": config} | ({f"{VERSION}/model.py": TEXT} if spec.triton.flavour == "embedded" else {})
    if root is None:
        _put_remote(spec, sources, texts)
        return
    target = root / spec.name
    if target.exists():
        if f'"{spec.package.digest}"' not in (target / "config.pbtxt").read_text(encoding="utf-8"):
            raise DataFault([f"{target}: holds another package; a name is never used twice, take the next version"])
        shutil.rmtree(target)  # our own, from an attempt that ended early; it is not loaded
    # The attempt lies beside the repository, not in it: Triton lists every folder that it finds there.
    attempts = root.with_name(f"{root.name}.attempts")
    attempt = attempts / uuid.uuid4().hex
    try:
        _write(attempt, sources, texts)
        root.mkdir(parents=True, exist_ok=True)
        attempt.rename(target)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def model_spec(spec: StageSpec, artifact: Artifact) -> ModelSpec:
    """What a package's configuration is rendered from: its graph, its engine's files, its timing table and its SLO."""
    engine, main = engine_file(artifact, spec.package)
    row = read_engines(artifact).row(engine)
    names = {main.name} | {DATA} & {entry.path for entry in artifact.manifest.files}
    paths = {name: artifact.file(name) for name in names}
    package = spec.package
    return ModelSpec(
        name=spec.name,
        graph=describe(require_digest(artifact, package)),
        batching=batching(row, package.serving.slo, package.signature.max_batch, ParityPolicy().preferred_batch),
        engine=engine,
        files={name: file_digest(path) for name, path in paths.items()},
        checksums={name: md5(path) for name, path in paths.items()},
        main=main.name,
        onnx_digest=package.onnx_digest,
        package_digest=package.digest,
    )


def md5(path: Path) -> str:
    """The only checksum that Triton's agent knows; against accidents, the SHA-256 digests are against everything."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _write(folder: Path, sources: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    version = folder / str(VERSION)
    version.mkdir(parents=True)
    for name, source in sources.items():
        shutil.copyfile(source, version / name)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _put_remote(spec: StageSpec, sources: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """An object store has no rename; the server is in explicit mode, so it looks only when it is told to load."""
    for name, source in sources.items():
        write_bytes(join(spec.triton.repository, spec.name, str(VERSION), name), source.read_bytes())
    for name, text in texts.items():
        write_bytes(join(spec.triton.repository, spec.name, name), text.encode())


def remove_folder(triton: TritonServer, name: str) -> None:
    """Removes a version's folder; a name that is loaded must be unloaded first."""
    root = local_path(triton.repository)
    if root is not None:
        shutil.rmtree(root / name, ignore_errors=True)
        return
    remove_all(join(triton.repository, name))
