"""One encoding for training, parity, golden requests and the gateway: text to codes, null to NaN. Pure; numpy only.

Shapes: B rows, n numeric and m categorical inputs, in the order of the signature.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from artifacts.step import DataFault
from training.contract import Signature

Values: TypeAlias = Sequence[Any] | npt.NDArray[Any]

UNKNOWN = 0  # code of null and of every word that the vocabulary lacks


def encode(
    columns: Mapping[str, Values], signature: Signature
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The graph's two tensors for B rows: numeric float32 [B, n] with NaN for null, categorical int64 [B, m].

    Columns that the signature does not name are ignored. Raises DataFault when one that it names is absent, when
    lengths differ, or when a numeric column holds text.
    """
    names = [*signature.numeric, *(item.name for item in signature.categorical)]
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataFault(
            f"columns: '{name}' is absent; the signature reads it, give nulls if unknown" for name in absent
        )
    lengths = {name: len(columns[name]) for name in names}
    if len(set(lengths.values())) > 1:
        raise DataFault([f"columns: lengths differ ({lengths}); give one value per row in every column"])
    rows = next(iter(lengths.values()), 0)
    numeric = np.empty((rows, len(signature.numeric)), dtype=np.float32)
    for place, name in enumerate(signature.numeric):
        numeric[:, place] = numbers(columns[name], name)
    categorical = np.empty((rows, len(signature.categorical)), dtype=np.int64)
    for place, item in enumerate(signature.categorical):
        categorical[:, place] = codes(columns[item.name], item.vocabulary)
    return numeric, categorical


def numbers(values: Values, name: str) -> npt.NDArray[np.float32]:
    """One numeric column as float32 [B]; None becomes NaN, what float32 cannot hold becomes infinite."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataFault([
            f"columns: '{name}' holds something that is no number ({error}); send numbers or null"
        ]) from error


def codes(values: Values, vocabulary: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """One categorical column as int64 [B]: 0 for null or unknown, i + 1 for ``vocabulary[i]``."""
    places = _places(vocabulary)
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    found = (places.get(value if isinstance(value, str) else _text(value), UNKNOWN) for value in plain)
    return np.fromiter(found, dtype=np.int64, count=len(plain))


def texts(values: Values) -> list[str | None]:
    """A column as the text that vocabularies hold, [B]; None for null."""
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return [_text(value) for value in plain]


def words(values: Values) -> tuple[str, ...]:
    """The vocabulary of a column: its distinct non-null values as text, sorted."""
    return tuple(sorted({text for text in texts(values) if text is not None}))


@functools.lru_cache(maxsize=256)  # the gateway asks for the same few vocabularies at every request
def _places(vocabulary: tuple[str, ...]) -> dict[str | None, int]:
    return {entry: code for code, entry in enumerate(vocabulary, start=1)}


def _text(value: Any) -> str | None:
    """A categorical value as the text that vocabularies hold; whole floats lose their point (3.0 is '3')."""
    if value is None or value != value:  # noqa: PLR0124  NaN is the one value that differs from itself
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
