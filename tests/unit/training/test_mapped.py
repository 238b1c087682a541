"""Rows that one rank unpacks and others map are the rows that each would have read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.make import training as make
from training.data import Material, material
from training.mapped import ALIGNMENT, mapped, write


@pytest.mark.parametrize("fit", ["evaluation", "final"])
def test_what_is_mapped_is_what_was_written(tmp_path: Path, fit: str) -> None:
    found = material(
        make.train_spec(make.dataset(tmp_path), tmp_path / "fit", fit=fit, epochs=2 if fit == "final" else None)
    )
    with (tmp_path / "rows").open("wb") as file:
        write(file, found)
    again = mapped(tmp_path / "rows")
    for name in set(Material.__dataclass_fields__) - {"train", "validation"}:
        assert getattr(again, name) == getattr(found, name)
    assert (again.validation is None) == (fit == "final")
    for part in filter(None, ("train", "validation" if fit == "evaluation" else "")):
        for name in ("numeric", "categorical", "label"):
            one, other = getattr(getattr(again, part), name), getattr(getattr(found, part), name)
            assert one.dtype == other.dtype
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
            assert one.ctypes.data % ALIGNMENT == 0


def test_changes_stay_in_the_process_that_makes_them(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("wb") as file:
        write(file, material(make.train_spec(make.dataset(tmp_path), tmp_path / "fit")))
    first, second = mapped(tmp_path / "rows"), mapped(tmp_path / "rows")
    first.train.label[0] = 7
    assert second.train.label[0] != 7
