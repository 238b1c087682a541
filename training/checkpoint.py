"""Checkpoints of a running fit: each is an artifact of its own, so it is there whole or not at all, and a broken one is known.

Tensors lie in torch's distributed format, by their names: each rank writes what it alone holds, and a fit may go on with
another number of ranks or another strategy.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.content import Artifact, ArtifactCorrupt
from artifacts.refs import Digest, Uri, join, local_path
from artifacts.store import children, objects, publish, read, remove_all
from training.distributed import Ranks

KIND = "checkpoint"
PROGRESS_FILE = "progress.json"
NAME = re.compile(r"\d{12}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What a fit goes on from. ``skipped`` names the newer ones that could not be used, and why."""

    artifact: Artifact
    skipped: tuple[str, ...] = ()

    @property
    def progress(self) -> dict[str, Any]:
        """The numbers that were saved with the tensors."""
        found: dict[str, Any] = json.loads(self.artifact.file(PROGRESS_FILE).read_text())
        return found


def folder(output: Uri) -> Uri:
    """Where the checkpoints of an output lie: beside it, since they are no part of the artifact."""
    return f"{output}.checkpoints"


def save(
    where: Uri, key: Digest, step: int, tensors: dict[str, Any], progress: Mapping[str, Any], keep: int = 3
) -> None:
    """One rank that holds everything writes one checkpoint, then removes all but the newest ``keep``."""
    with publish(join(where, f"{step:012d}"), KIND) as draft:
        _write(tensors, draft.path, alone=True)
        (draft.path / PROGRESS_FILE).write_text(json.dumps(progress))
        draft.facts = {"key": key}
    _forget(where, keep)


def save_parts(
    ranks: Ranks,
    where: Uri,
    key: Digest,
    step: int,
    tensors: dict[str, Any],
    progress: Mapping[str, Any],
    keep: int = 3,
) -> None:
    """All ranks write what each holds into one checkpoint; every rank must call it. They share the store's file system.

    Where one rank fails, the others lose it as a peer, and nothing has been published.
    """
    if not ranks.leads:
        shared = ranks.shared(None)
        assert shared is not None  # noqa: S101  rank 0 sends a path
        _write(tensors, Path(shared.decode()), alone=False)
        ranks.meet()
        return
    with publish(join(where, f"{step:012d}"), KIND) as draft:
        ranks.shared(str(draft.path).encode())
        _write(tensors, draft.path, alone=False)
        ranks.meet()
        (draft.path / PROGRESS_FILE).write_text(json.dumps(progress))
        draft.facts = {"key": key}
    _forget(where, keep)


def newest(where: Uri, key: Digest) -> Checkpoint | None:
    """The newest checkpoint of this very work that is whole; older ones are tried in turn, and the log says so."""
    skipped: list[str] = []
    for name in reversed(_steps(where)):
        try:
            found = read(join(where, name))
        except ArtifactCorrupt as error:
            skipped.append(str(error))
        else:
            if found.manifest.facts.get("key") == key:
                return Checkpoint(found, tuple(skipped))
            skipped.append(f"{join(where, name)}: it belongs to another spec")
        log.warning("checkpoint skipped, trying the one before: %s", skipped[-1])
    return None


def agreed(ranks: Ranks, where: Uri, key: Digest) -> Checkpoint | None:
    """The checkpoint that rank 0 has chosen, on every rank (field report 89)."""
    chosen = newest(where, key) if ranks.leads else None
    name = ranks.shared(chosen.artifact.uri.encode() if chosen else None)
    if name is None:
        return None
    if chosen is None:
        chosen = Checkpoint(read(name.decode()))
    return chosen


def load(found: Checkpoint, tensors: dict[str, Any]) -> None:
    """Fills tensors of the right names and shapes in place, whatever ranks and strategy wrote them."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415  0.7 s that only a fit which saves or resumes needs

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # every rank knows what it needs
        dcp.load(tensors, storage_reader=dcp.FileSystemReader(found.artifact.path), no_dist=True)


def clear(where: Uri) -> None:
    """Removes every checkpoint, and what a killed writer left; the artifact has been published."""
    remove_all(where)


def _write(tensors: dict[str, Any], path: Path, *, alone: bool) -> None:
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415  see above

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # that is what ``alone`` asks for
        dcp.save(
            tensors, storage_writer=dcp.FileSystemWriter(path, sync_files=False), no_dist=alone
        )  # publishing syncs


def _forget(where: Uri, keep: int) -> None:
    """Removes all but the newest few, and what writers that were killed before them left."""
    kept = _steps(where)[-keep:]
    for name in {path.partition("/")[0] for path in _names(where)}:
        if NAME.fullmatch(name) and name < kept[0]:
            remove_all(join(where, name))


def _names(where: Uri) -> tuple[str, ...]:
    path = local_path(where)
    return objects(where) if path is None else tuple(found.name for found in path.glob("*"))


def _steps(where: Uri) -> list[str]:
    return [name for name in children(where) if NAME.fullmatch(name)]
