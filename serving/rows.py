"""The rows of a prediction request, checked value by value before anything is computed. Pure; numpy only.

B rows; every input is a tensor [B] or [B, 1] of the datatype that the package's serving block names.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.contract import RequestInput
from serving.oip import InferRequest, Tensor

REQUEST_ID = "request_id"
LONGEST_TEXT = 200
MOST_PROBLEMS = 20


class RowFault(ValueError):
    """Values of a request are at fault: one line per problem, each with input, row, value and fix."""

    def __init__(self, problems: list[str]) -> None:
        more = len(problems) - MOST_PROBLEMS
        self.problems = [*problems[:MOST_PROBLEMS], *([f"and {more} more problems"] if more > 0 else [])]
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Rows:
    """The checked rows. ``columns`` are typed for ``derive`` (times as datetime64[us], text as str objects)."""

    request_ids: tuple[str, ...]
    columns: dict[str, np.ndarray]
    sent: tuple[dict[str, Any], ...]

    def __len__(self) -> int:
        return len(self.request_ids)


def check(wanted: tuple[RequestInput, ...], request: InferRequest, max_batch: int) -> Rows:
    """The rows of a request; raises RowFault with every problem found."""
    known = {item.name for item in wanted} | {REQUEST_ID}
    problems = [
        f"{name[:80]!r}: no such input; there are {sorted(known)}" for name in request.inputs if name not in known
    ]
    problems += [f"{item.name}: is missing" for item in wanted if item.name not in request.inputs]
    flat = {name: _flat(name, tensor, problems) for name, tensor in request.inputs.items() if name in known}
    sizes = {len(values) for values in flat.values()}
    if len(sizes) > 1:
        problems.append(f"inputs have different numbers of rows: { {name: len(v) for name, v in flat.items()} }")
    size = max(sizes, default=0)
    if not 1 <= size <= max_batch:
        problems.append(f"a request has 1 to {max_batch} rows, this one has {size}; send several requests")
    if problems:
        raise RowFault(problems)
    columns, shown = {}, {}
    for item in wanted:
        columns[item.name], shown[item.name] = _column(item, request.inputs[item.name], flat[item.name], problems)
    request_ids = _request_ids(request, flat.get(REQUEST_ID), size, problems)
    if problems:
        raise RowFault(problems)
    sent = tuple({name: values[row] for name, values in shown.items()} for row in range(size))
    return Rows(request_ids, columns, sent)


def _flat(name: str, tensor: Tensor, problems: list[str]) -> np.ndarray:
    shape = tensor.values.shape
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):  # noqa: PLR2004  [B] or [B, 1]
        problems.append(f"{name}: shape {list(shape)} is neither [rows] nor [rows, 1]")
    return tensor.values.reshape(-1)


def _column(
    item: RequestInput, tensor: Tensor, values: np.ndarray, problems: list[str]
) -> tuple[np.ndarray, list[Any]]:
    """The typed column, and its values as the log keeps them."""
    if tensor.datatype != item.datatype:
        problems.append(f"{item.name}: datatype is {tensor.datatype}; send {item.datatype}")
        return values, values.tolist()
    if item.datatype == "BYTES":
        texts = [_text(item.name, row, value, problems) for row, value in enumerate(values)]
        if item.time:
            return np.array([_instant(item.name, row, text, problems) for row, text in enumerate(texts)]), texts
        column = np.empty(len(texts), dtype=object)
        column[:] = texts
        return column, texts
    if values.dtype.kind == "f":
        problems += [
            f"{item.name}[{row}]: {values[row]} is no finite number" for row in np.flatnonzero(~np.isfinite(values))
        ]
    return values, values.tolist()


def _text(name: str, row: int, value: bytes, problems: list[str]) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        problems.append(f"{name}[{row}]: {value[:40]!r} is no UTF-8")
        return ""
    if not 1 <= len(text) <= LONGEST_TEXT:
        problems.append(f"{name}[{row}]: has {len(text)} characters; send 1 to {LONGEST_TEXT}")
    elif not text.isprintable():
        problems.append(f"{name}[{row}]: {text[:40]!r} has characters that cannot be printed")
    return text


def _instant(name: str, row: int, text: str, problems: list[str]) -> np.datetime64:
    try:
        instant = dt.datetime.fromisoformat(text)
        if instant.tzinfo is None:
            problems.append(f"{name}[{row}]: {text!r} has no zone; write it as 2013-09-01T13:00:00Z")
        else:
            return np.datetime64(instant.astimezone(dt.UTC).replace(tzinfo=None), "us")
    except (ValueError, OverflowError):
        problems.append(f"{name}[{row}]: {text[:40]!r} is no time; write it as 2013-09-01T13:00:00Z")
    return np.datetime64("NaT", "us")


def _request_ids(request: InferRequest, values: np.ndarray | None, size: int, problems: list[str]) -> tuple[str, ...]:
    """The ids as sent; else the request's own id for a single row; else fresh ones."""
    if values is None:
        if size == 1 and request.id:
            return (_text("id", 0, request.id.encode(errors="replace"), problems),)
        return tuple(uuid.uuid4().hex for _ in range(size))
    if request.inputs[REQUEST_ID].datatype != "BYTES":
        problems.append(f"{REQUEST_ID}: datatype is {request.inputs[REQUEST_ID].datatype}; send BYTES")
        return ()
    request_ids = tuple(_text(REQUEST_ID, row, value, problems) for row, value in enumerate(values))
    if len(set(request_ids)) < len(request_ids):
        problems.append(f"{REQUEST_ID}: the same id twice in one request; every row needs its own")
    return request_ids
