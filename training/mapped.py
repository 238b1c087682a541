"""What a fit learns from, once per machine: one rank unpacks the training set, all of its ranks map the same pages.

The columns lie in a file without a name, so whatever kills the ranks leaves nothing on the disk. Rows that are not being
read may leave memory again, since the file is on a disk.
"""

from __future__ import annotations

import datetime as dt
import json
import mmap
import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from training.contract import Signature, TrainSpec
from training.data import Encoded, Material, material
from training.distributed import Ranks

ALIGNMENT = 64
ARRAYS = ("numeric", "categorical", "label")


def shared_material(spec: TrainSpec, ranks: Ranks) -> Material:
    """What ``material`` gives, unpacked by the first rank of each machine; every rank must call it."""
    if ranks.world == 1:
        return material(spec)
    with tempfile.TemporaryFile(prefix="perennial-") as file:
        if ranks.local == 0:
            write(file, material(spec))
        ranks.meet()  # nobody opens it before it is whole
        process, descriptor = ranks.each(os.getpid()), ranks.each(file.fileno())
        writer = ranks.rank - ranks.local
        found = mapped(Path(f"/proc/{int(process[writer])}/fd/{int(descriptor[writer])}"))
        ranks.meet()  # nor closes it before all have opened it
    return found


def write(file: IO[bytes], found: Material) -> None:
    """Arrays, each aligned, and at the end what describes them: JSON, then its length in 8 bytes."""
    arrays: dict[str, Any] = {}
    for part in ("train", "validation"):
        rows: Encoded | None = getattr(found, part)
        for name in ARRAYS if rows else ():
            values = np.ascontiguousarray(getattr(rows, name))
            file.write(bytes(-file.tell() % ALIGNMENT))
            arrays[f"{part}.{name}"] = (file.tell(), values.dtype.str, values.shape)
            file.write(values.reshape(-1).view(np.uint8).data)
    about = {
        "arrays": arrays,
        "signature": found.signature.model_dump(mode="json"),
        "mean": found.mean,
        "std": found.std,
        "days": [found.train_last.isoformat(), found.seen_last.isoformat()],
    }
    text = json.dumps(about).encode()
    file.write(text + len(text).to_bytes(8, "little"))
    file.flush()


def mapped(path: Path) -> Material:
    """Opens what ``write`` wrote; arrays are views of the file, and changes to them stay in this process."""
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    length = int.from_bytes(content[-8:], "little")
    about = json.loads(content[-8 - length : -8])

    def array(name: str) -> npt.NDArray[Any]:
        start, kind, shape = about["arrays"][name]
        return np.frombuffer(content, np.dtype(kind), int(np.prod(shape)), start).reshape(shape)

    def rows(part: str) -> Encoded:
        return Encoded(*(array(f"{part}.{name}") for name in ARRAYS))

    train_last, seen_last = (dt.date.fromisoformat(day) for day in about["days"])
    return Material(
        signature=Signature.model_validate(about["signature"]),
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        train=rows("train"),
        validation=rows("validation") if "validation.label" in about["arrays"] else None,
        train_last=train_last,
        seen_last=seen_last,
    )
