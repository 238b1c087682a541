"""The Open Inference Protocol v2 on the wire: JSON and binary tensors both ways, and every fault in one line. Pure.

Written for ``tritonclient.http`` (checked with 2.73): a JSON head, then raw tensors in input order when the header
``Inference-Header-Content-Length`` is there; a BYTES element is a 4-byte little-endian length and its bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

HEADER_LENGTH = "Inference-Header-Content-Length"
DTYPES = {
    "BOOL": "?",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
DATATYPES = {np.dtype(code): name for name, code in DTYPES.items()}
ZLIB_OR_GZIP = 47  # zlib's window bits for "either header"
COMPRESS_FROM_BYTES = 1024  # below this a compressed answer costs more than it saves


class WireFault(ValueError):
    """What was sent is no valid request; the text says in one line what to change."""

    def __init__(self, text: str) -> None:
        super().__init__("".join(letter if letter.isprintable() else "?" for letter in text))


class TooLarge(ValueError):
    """The body, or what it unpacks to, is larger than the server takes."""


@dataclass(frozen=True)
class Tensor:
    """One input: its datatype as sent, and its values in its shape (object array of bytes for BYTES)."""

    datatype: str
    values: np.ndarray


@dataclass(frozen=True)
class InferRequest:
    """A decoded request. ``outputs`` maps the wanted outputs to "as binary"; empty means all of them.

    ``timeout_seconds`` is how long the caller waits: the protocol's request parameter ``timeout``, in microseconds.
    """

    id: str
    inputs: dict[str, Tensor]
    outputs: dict[str, bool]
    binary_default: bool
    timeout_seconds: float | None = None


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """Undoes the Content-Encoding; raises TooLarge when more than ``limit`` bytes come out."""
    if encoding in {"", "identity"}:
        return body
    if encoding not in {"gzip", "deflate"}:
        raise WireFault(f"Content-Encoding '{encoding[:40]}' is not supported; use gzip, deflate or none")
    unpacker = zlib.decompressobj(ZLIB_OR_GZIP)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise WireFault(f"the body is no valid {encoding} stream ({error})") from error
    if len(plain) > limit:
        raise TooLarge(f"the body unpacks to more than {limit} bytes")
    if not unpacker.eof:
        raise WireFault(f"the {encoding} body ends too early")
    return plain


def compress(body: bytes, accepted: str) -> tuple[bytes, str]:
    """The body and its Content-Encoding ("" for none), compressed if the caller accepts it and it is worth it."""
    wanted = {part.partition(";")[0].strip() for part in accepted.split(",")}
    for encoding, bits in (("gzip", 31), ("deflate", 15)):
        if encoding in wanted and len(body) >= COMPRESS_FROM_BYTES:
            packer = zlib.compressobj(1, wbits=bits)
            return packer.compress(body) + packer.flush(), encoding
    return body, ""


def decode(body: bytes, header_length: str | None = None) -> InferRequest:
    """Reads a request; ``header_length`` is the value of the header of that name. Raises WireFault."""
    split = _split(body, header_length)
    head = _head(body[:split])
    raw = memoryview(body)[split:]
    inputs: dict[str, Tensor] = {}
    for entry in _entries(head, "inputs"):
        name = entry["name"]
        if name in inputs:
            raise WireFault(f"input '{name}' is given twice")
        tensor, used = _tensor(entry, raw)
        inputs[name] = tensor
        raw = raw[used:]
    if len(raw):
        raise WireFault(f"{len(raw)} bytes are left after the last binary input")
    parameters = _parameters(head, "request")
    binary_default = parameters.get("binary_data_output", False) is True
    outputs = {
        entry["name"]: _parameters(entry, entry["name"]).get("binary_data", binary_default) is True
        for entry in _entries(head, "outputs")
    }
    identity = head.get("id", "")
    if not isinstance(identity, str):
        raise WireFault("id: is no string")
    return InferRequest(identity, inputs, outputs, binary_default, _timeout(parameters.get("timeout")))


def encode(
    request: InferRequest, answer: Mapping[str, Any], outputs: Mapping[str, np.ndarray]
) -> tuple[bytes, dict[str, str]]:
    """The answer's body and headers; ``answer`` holds model_name, model_version, parameters. Raises WireFault."""
    for name in request.outputs:
        if name not in outputs:
            raise WireFault(f"output '{name[:80]}' does not exist; there are {sorted(outputs)}")
    entries, blobs = [], []
    for name in request.outputs or outputs:
        values = outputs[name]
        text = values.dtype == object
        entry: dict[str, Any] = {
            "name": name,
            "datatype": "BYTES" if text else DATATYPES[values.dtype],
            "shape": list(values.shape),
        }
        if request.outputs.get(name, request.binary_default):
            blob = pack_bytes(values) if text else np.ascontiguousarray(values).tobytes()
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = [item.decode() for item in values.ravel()] if text else values.ravel().tolist()
        entries.append(entry)
    head = {**answer, **({"id": request.id} if request.id else {}), "outputs": entries}
    raw = json.dumps(head, separators=(",", ":")).encode()
    if not blobs:
        return raw, {"Content-Type": "application/json"}
    return raw + b"".join(blobs), {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(raw))}


def _timeout(microseconds: object) -> float | None:
    if microseconds is None or microseconds == 0:  # Triton's clients send 0 for "none"
        return None
    if type(microseconds) is not int or microseconds < 0:
        raise WireFault(f"parameters.timeout: {str(microseconds)[:40]!r} is no number of microseconds")
    return min(microseconds, 10**12) / 1e6


def pack_bytes(values: np.ndarray) -> bytes:
    """A BYTES tensor as it travels."""
    return b"".join(struct.pack("<I", len(item)) + item for item in values.ravel())


def _split(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 12:  # noqa: PLR2004
        raise WireFault(f"{HEADER_LENGTH}: '{header_length[:40]}' is no length in bytes")
    if int(header_length) > len(body):
        raise WireFault(f"{HEADER_LENGTH} says {header_length} bytes, the body has {len(body)}")
    return int(header_length)


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireFault(f"the body is no JSON ({str(error).splitlines()[0][:120]})") from error
    if not isinstance(head, dict):
        raise WireFault("the body is no JSON object")
    if not head.get("inputs"):
        raise WireFault("inputs: is missing; send a list of tensors")
    return head


def _entries(head: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    entries = head.get(key, [])
    if not isinstance(entries, list):
        raise WireFault(f"{key}: is no list")
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise WireFault(f"{key}[{position}]: is no object with a name")
        yield entry


def _parameters(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise WireFault(f"{place[:80]}: parameters is no object")
    if any(key.startswith("shared_memory") for key in parameters):
        raise WireFault(f"{place[:80]}: shared memory is not supported; send the tensor in the body")
    return parameters


def _tensor(entry: Mapping[str, Any], raw: memoryview) -> tuple[Tensor, int]:
    """The tensor of one entry, and how many of the raw bytes belong to it."""
    name, datatype = entry["name"][:80], entry.get("datatype")
    if not isinstance(datatype, str) or (datatype != "BYTES" and datatype not in DTYPES):
        raise WireFault(f"{name}: datatype {str(datatype)[:40]!r} is unknown")
    shape = _shape(entry, name)
    size = _parameters(entry, name).get("binary_data_size")
    if size is None:
        values = _from_json(entry, name, datatype)
        used = 0
    else:
        if type(size) is not int or not 0 <= size <= len(raw):
            raise WireFault(f"{name}: binary_data_size={str(size)[:40]}, but {len(raw)} bytes are left in the body")
        values = _from_binary(raw[:size], name, datatype)
        used = size
    count = 1
    for length in shape:
        count *= length
    if count != len(values):
        raise WireFault(f"{name}: shape {list(shape)} needs {count} values, {len(values)} were sent")
    try:
        return Tensor(datatype, values.reshape(shape)), used
    except ValueError as error:  # no rows of absurd width
        raise WireFault(f"{name}: shape {list(shape)} is too large") from error


def _shape(entry: Mapping[str, Any], name: str) -> tuple[int, ...]:
    shape = entry.get("shape")
    most = 8
    if not isinstance(shape, list) or not 1 <= len(shape) <= most:
        raise WireFault(f"{name}: shape is no list of 1 to {most} lengths")
    if not all(type(length) is int and 0 <= length < 1 << 31 for length in shape):
        raise WireFault(f"{name}: shape {str(shape)[:80]} has something that is no length")
    return tuple(shape)


def _flat(data: Any, name: str) -> list[Any]:
    """The values of JSON data, which may be nested as its shape is or flat, in row-major order."""
    if not isinstance(data, list):
        raise WireFault(f"{name}: data is no list (and there is no binary_data_size)")
    while any(isinstance(item, list) for item in data):
        if not all(isinstance(item, list) for item in data):
            raise WireFault(f"{name}: data mixes lists and values")
        data = [value for item in data for value in item]
    return data


def _from_json(entry: Mapping[str, Any], name: str, datatype: str) -> np.ndarray:
    flat = _flat(entry.get("data"), name)
    if datatype == "BYTES":
        return _texts(flat, name)
    dtype = np.dtype(DTYPES[datatype])
    allowed = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}[dtype.kind]
    for position, value in enumerate(flat):
        if type(value) not in allowed:
            raise WireFault(f"{name}[{position}]: {str(value)[:40]!r} is no {datatype}")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(flat, dtype=dtype)
    except (OverflowError, ValueError) as error:
        raise WireFault(f"{name}: a value does not fit into {datatype}") from error


def _texts(flat: list[Any], name: str) -> np.ndarray:
    values = np.empty(len(flat), dtype=object)
    for position, value in enumerate(flat):
        if not isinstance(value, str):
            raise WireFault(f"{name}[{position}]: {str(value)[:40]!r} is no string")
        try:
            values[position] = value.encode()
        except UnicodeEncodeError as error:
            raise WireFault(f"{name}[{position}]: is no valid Unicode") from error
    return values


def _from_binary(raw: memoryview, name: str, datatype: str) -> np.ndarray:
    if datatype != "BYTES":
        dtype = np.dtype(DTYPES[datatype])
        if len(raw) % dtype.itemsize:
            raise WireFault(f"{name}: {len(raw)} bytes are no whole number of {datatype} values")
        return np.frombuffer(raw, dtype)
    items: list[bytes] = []
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise WireFault(f"{name}: the BYTES tensor ends inside a length")
        (length,) = struct.unpack_from("<I", raw, at)
        at += 4
        if at + length > len(raw):
            raise WireFault(f"{name}: element {len(items)} says {length} bytes, {len(raw) - at} are left")
        items.append(bytes(raw[at : at + length]))
        at += length
    values = np.empty(len(items), dtype=object)
    values[:] = items
    return values
