"""Checkpoints of a running fit: each is one object whose name holds its digest, so a broken one is known before use."""

from __future__ import annotations

import io
import logging
from dataclasses import dataclass
from typing import Any

import torch

from artifacts.refs import Digest, Uri, join, sha256
from artifacts.store import objects, read_bytes, remove, remove_all, write_bytes

KEPT = 3
SUFFIX = ".pt"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What a fit goes on from, still as bytes. ``skipped`` names the newer ones that could not be used, and why."""

    content: bytes
    skipped: tuple[str, ...] = ()


def folder(output: Uri) -> Uri:
    """Where the checkpoints of an output lie: beside it, since they are no part of the artifact."""
    return f"{output}.checkpoints"


def save(where: Uri, key: Digest, step: int, state: dict[str, Any]) -> None:
    """Writes one checkpoint whole or not at all (temp, fsync, rename), then removes all but the newest few."""
    buffer = io.BytesIO()
    torch.save({"key": key, "state": state}, buffer)
    content = buffer.getvalue()
    write_bytes(join(where, f"{step:012d}-{sha256(content).removeprefix('sha256:')}{SUFFIX}"), content)
    for name in _names(where)[:-KEPT]:
        remove(join(where, name))


def newest(where: Uri, key: Digest) -> Checkpoint | None:
    """The newest checkpoint of this very work that is whole; older ones are tried in turn, and the log says so."""
    skipped: list[str] = []
    for name in reversed(_names(where)):
        content = read_bytes(join(where, name))
        if sha256(content).removeprefix("sha256:") != name.removesuffix(SUFFIX).partition("-")[2]:
            skipped.append(f"{name}: its content does not have the digest in its name")
        elif _load(content)["key"] != key:
            skipped.append(f"{name}: it belongs to another spec")
        else:
            return Checkpoint(content, tuple(skipped))
        log.warning("checkpoint skipped, trying the one before: %s/%s", where, skipped[-1])
    return None


def state_of(content: bytes) -> dict[str, Any]:
    """What was saved; plain tensors and numbers, never code."""
    state: dict[str, Any] = _load(content)["state"]
    return state


def _load(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    return found


def clear(where: Uri) -> None:
    """Removes every checkpoint, and what a killed writer left; the artifact has been published."""
    remove_all(where)


def _names(where: Uri) -> list[str]:
    return [name for name in objects(where) if name.endswith(SUFFIX)]
