from __future__ import annotations

import json
import socket
from pathlib import Path

from operators.ports import free, pick, remembered, unused

NAMES = ("airflow", "gateway", "triton")


def test_ports_are_distinct_free_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "var" / "ports.json"
    first = pick(NAMES, path)
    assert tuple(first) == NAMES
    assert len(set(first.values())) == 3
    assert all(free(port) for port in first.values())
    assert pick(NAMES, path) == first == remembered(path)


def test_a_port_that_somebody_else_took_is_given_up_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    first = pick(NAMES, path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first["gateway"]))
        other.listen()
        assert not free(first["gateway"])
        assert pick(NAMES, path, in_use=True) == first
        second = pick(NAMES, path)
    assert second["gateway"] != first["gateway"]
    assert (second["airflow"], second["triton"]) == (first["airflow"], first["triton"])


def test_a_wish_is_granted_when_it_is_free_and_nothing_is_remembered(tmp_path: Path) -> None:
    (wish,) = unused(1)
    path = tmp_path / "ports.json"
    assert pick({"airflow": wish, "gateway": wish}, path)["airflow"] == wish
    assert remembered(path)["gateway"] != wish


def test_a_damaged_memory_is_started_anew_and_other_names_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.write_text("{")
    assert set(pick(NAMES, path)) == set(NAMES)
    path.write_text("[1]")
    assert remembered(path) == {}
    path.write_text(json.dumps({"other": 4711, "airflow": "none"}))
    pick(["airflow"], path)
    assert remembered(path)["other"] == 4711
