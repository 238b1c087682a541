"""Checkpoints on a real S3 server: kept, found and removed with the credentials of the declared store."""

from __future__ import annotations

import pytest
import torch

from artifacts import store
from artifacts.refs import Uri, join, sha256
from training import checkpoint

pytestmark = pytest.mark.torch


def test_the_newest_is_found_three_are_kept_and_all_go(lake: Uri) -> None:
    where, key = join(lake, "fit.checkpoints"), sha256(b"work")
    assert checkpoint.newest(where, key) is None
    for at in (9, 10, 11, 100):
        checkpoint.save(where, key, at, {"at": torch.tensor(at)}, {"step": at})
    assert sorted({int(name.partition("/")[0]) for name in store.objects(where)}) == [10, 11, 100]
    found = checkpoint.newest(where, key)
    assert found is not None
    tensors = {"at": torch.tensor(0)}
    checkpoint.load(found, tensors)
    assert (int(tensors["at"]), found.progress) == (100, {"step": 100})
    checkpoint.clear(where)
    assert store.objects(where) == ()
