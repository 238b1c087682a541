"""The wire format: what tritonclient sends is read, what is wrong is said in one line, and nothing else happens."""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving import oip


def body(**changes: object) -> bytes:
    entry = {"name": "x", "shape": [2, 1], "datatype": "INT64", "data": [1, 2], **changes}
    return json.dumps({"inputs": [{key: value for key, value in entry.items() if value is not None}]}).encode()


def binary(head: dict[str, object], *raw: bytes) -> tuple[bytes, str]:
    text = json.dumps(head).encode()
    return text + b"".join(raw), str(len(text))


def test_json_tensors_flat_and_nested() -> None:
    flat = oip.decode(body()).inputs["x"].values
    nested = oip.decode(body(data=[[1], [2]])).inputs["x"].values
    assert flat.tolist() == nested.tolist() == [[1], [2]]
    assert flat.dtype == np.int64


def test_binary_tensors_follow_each_other() -> None:
    texts = np.array([b"UA", "é".encode()], dtype=object)
    packed = oip.pack_bytes(texts)
    number = np.array([1.5, 2.5]).tobytes()
    entries = [
        {"name": "a", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(packed)}},
        {"name": "b", "shape": [2], "datatype": "FP64", "parameters": {"binary_data_size": len(number)}},
    ]
    found = oip.decode(*binary({"inputs": entries}, packed, number)).inputs
    assert found["a"].values.tolist() == texts.tolist()
    assert found["b"].values.tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "the body is no JSON"),
        (b"[1]", "the body is no JSON object"),
        (b"{}", "inputs: is missing"),
        (b'{"inputs": [1]}', "inputs[0]: is no object with a name"),
        (b'{"inputs": 5}', "inputs: is no list"),
        (body(datatype="INT65"), "x: datatype 'INT65' is unknown"),
        (body(shape=[3]), "x: shape [3] needs 3 values, 2 were sent"),
        (body(shape=[-1]), "x: shape [-1] has something that is no length"),
        (body(data=None), "x: data is no list"),
        (body(data=[1, "2"]), "x[1]: '2' is no INT64"),
        (body(data=[1, True]), "x[1]: 'True' is no INT64"),
        (body(data=[1, None]), "x[1]: 'None' is no INT64"),
        (body(data=[1, 2**70]), "x: a value does not fit into INT64"),
        (body(data=[[1], 2]), "x: data mixes lists and values"),
        (body(datatype="BYTES"), "x[0]: '1' is no string"),
        (body(parameters={"shared_memory_region": "r"}), "x: shared memory is not supported"),
        (body(parameters={"binary_data_size": 16}), "x: binary_data_size=16, but 0 bytes are left"),
        (json.dumps({"id": 5, "inputs": [json.loads(body())["inputs"][0]]}).encode(), "id: is no string"),
        (b"[" * 100_000, "the body is no JSON"),
    ],
)
def test_a_fault_is_one_line_that_names_the_place(sent: bytes, said: str) -> None:
    with pytest.raises(oip.WireFault) as fault:
        oip.decode(sent)
    assert str(fault.value).startswith(said)
    assert "\n" not in str(fault.value)


def test_lengths_must_fit() -> None:
    entry = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}
    with pytest.raises(oip.WireFault, match="element 0 says 9 bytes, 2 are left"):
        oip.decode(*binary({"inputs": [entry]}, b"\x09\0\0\0ab"))
    with pytest.raises(oip.WireFault, match="1 bytes are left after the last binary input"):
        oip.decode(*binary({"inputs": [entry]}, b"\x02\0\0\0abc"))
    with pytest.raises(oip.WireFault, match="says 99999 bytes"):
        oip.decode(body(), "99999")
    with pytest.raises(oip.WireFault, match="is no length"):
        oip.decode(body(), "-1")


@pytest.mark.parametrize(("pack", "encoding"), [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
def test_packed_bodies(pack: object, encoding: str) -> None:
    assert oip.inflate(pack(b"x" * 100), encoding, 100) == b"x" * 100  # type: ignore[operator]
    with pytest.raises(oip.TooLarge):
        oip.inflate(pack(b"x" * 101), encoding, 100)  # type: ignore[operator]
    with pytest.raises(oip.WireFault, match="ends too early"):
        oip.inflate(pack(b"x" * 100)[:-5], encoding, 100)  # type: ignore[operator]
    with pytest.raises(oip.WireFault, match="no valid"):
        oip.inflate(b"plain", encoding, 100)
    packed, said = oip.compress(b"x" * 5000, f"br, {encoding};q=0.5")
    assert (said, oip.inflate(packed, said, 5000)) == (encoding, b"x" * 5000)
    assert oip.compress(b"short", encoding) == (b"short", "")


def test_answers_are_given_as_they_were_asked_for() -> None:
    outputs = {"score": np.array([[0.5]], dtype=np.float32), "request_id": np.array([[b"r1"]], dtype=object)}
    plain, headers = oip.encode(oip.InferRequest("7", {}, {}, binary_default=False), {"model_name": "m"}, outputs)
    assert json.loads(plain) == {
        "model_name": "m",
        "id": "7",
        "outputs": [
            {"name": "score", "datatype": "FP32", "shape": [1, 1], "data": [0.5]},
            {"name": "request_id", "datatype": "BYTES", "shape": [1, 1], "data": ["r1"]},
        ],
    }
    assert headers == {"Content-Type": "application/json"}
    raw, headers = oip.encode(oip.InferRequest("", {}, {"score": True}, binary_default=False), {}, outputs)
    assert raw[int(headers[oip.HEADER_LENGTH]) :] == outputs["score"].tobytes()
    with pytest.raises(oip.WireFault, match="output 'nope' does not exist"):
        oip.encode(oip.InferRequest("", {}, {"nope": True}, binary_default=False), {}, outputs)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {"name": st.text(max_size=4)},
    optional={
        "shape": st.lists(st.integers(-1, 1 << 31), max_size=9) | JSON,
        "datatype": st.sampled_from([*oip.DTYPES, "BYTES", "X"]) | JSON,
        "data": JSON,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 40) | JSON}) | JSON,
    },
)
HEAD = st.fixed_dictionaries(
    {"inputs": st.lists(ENTRY, max_size=3) | JSON},
    optional={"id": JSON, "outputs": st.lists(ENTRY, max_size=2) | JSON, "parameters": JSON},
)


def fault_of(body: bytes, length: str | None) -> str | None:
    """What a body is refused with; None when it was read."""
    try:
        oip.decode(body, length)
    except (oip.WireFault, oip.TooLarge) as fault:
        return str(fault)
    return None


@given(head=HEAD, raw=st.binary(max_size=40), shift=st.integers(-2, 2) | st.none())
@example(head={"inputs": [{"name": "a\nb"}]}, raw=b"", shift=None)
def test_whatever_comes_is_read_or_refused_in_one_line(head: object, raw: bytes, shift: int | None) -> None:
    text = json.dumps(head).encode()
    said = fault_of(text + raw, None if shift is None else str(len(text) + shift))
    assert said is None or (said and said.isprintable())


@given(raw=st.binary(max_size=200), length=st.text(max_size=6) | st.none())
def test_noise_is_refused(raw: bytes, length: str | None) -> None:
    assert fault_of(raw, length)
