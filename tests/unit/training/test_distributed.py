"""What errors of a group amount to: whose fault, and whether the same again may end well."""

from __future__ import annotations

import datetime as dt

import pytest

from artifacts.step import DataFault, LostPeer, TryAgain
from training.contract import TorchJob
from training.distributed import Ranks, joined, present


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_ran_out_is_said_with_what_to_change_and_never_retried(error: Exception) -> None:
    with pytest.raises(DataFault, match=r"memory: rank 0 of 1 ran out .* raise options\.accumulation"), _alone():
        raise error


def test_a_lost_peer_is_worth_another_try_and_other_errors_are_what_they_are() -> None:
    with pytest.raises(LostPeer, match="rank 0 of 1 lost a peer"), _alone():
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1234")
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2"), _alone():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(TryAgain, match=r"^hang: timed out"), _alone():
        raise TryAgain("hang: timed out")


class _Store:
    """A store in which only some keys ever appear."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)

    def set(self, key: str, _: str) -> None:
        self.there.add(key)

    def wait(self, keys: list[str], _: dt.timedelta) -> None:
        if not set(keys) <= self.there:
            raise RuntimeError("wait timeout")


def test_all_who_did_not_come_are_named() -> None:
    ranks = Ranks(0, 4, None, _Store("present/2"))  # type: ignore[arg-type]
    with pytest.raises(TryAgain, match=r"rank\(s\) 1, 3 of 4 did not come within 0\.01 s"):
        present(ranks, 0.01)


def _alone() -> object:
    return joined(TorchJob(processes_per_node=1))
