from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.cache import GB, Cache, Entry, default_bytes, to_evict
from artifacts.faults import CacheFull, StoreRefused
from artifacts.refs import Digest, sha256


def entry(name: str, size: int, used_at: int = 0, *, prefetched: bool = False, in_use: bool = False) -> Entry:
    return Entry(name, size, prefetched, used_at, in_use)


ENTRIES = st.lists(
    st.builds(
        entry, st.just(""), st.integers(0, 40), st.integers(0, 9), prefetched=st.booleans(), in_use=st.booleans()
    ),
    max_size=12,
).map(lambda many: [Entry(f"e{n}", one.size, one.prefetched, one.used_at, one.in_use) for n, one in enumerate(many)])


@given(ENTRIES, st.integers(0, 60), st.booleans())
def test_what_is_in_use_stays_and_the_bound_holds(entries: list[Entry], size: int, prefetch: bool) -> None:
    gone = to_evict(entries, size, 90, prefetch=prefetch)
    kept = [one for one in entries if gone is None or one.name not in gone]
    held = sum(one.size for one in entries if one.in_use)
    if gone is None:
        others = sum(one.size for one in entries if prefetch and not one.prefetched and not one.in_use)
        assert held + others + size > 90  # only what may not go is in the way
        return
    assert not [one for one in entries if one.in_use and one.name in gone]
    assert sum(one.size for one in kept) + size <= 90
    if prefetch:
        assert not [one for one in entries if one.name in gone and not one.prefetched]
    else:
        reads = [one for one in kept if not one.prefetched]
        assert sum(one.size for one in reads) + size <= 60 or all(one.in_use for one in reads)


@given(ENTRIES, st.integers(0, 60), st.booleans())
def test_the_least_recently_used_of_a_kind_goes_first(entries: list[Entry], size: int, prefetch: bool) -> None:
    gone = set(to_evict(entries, size, 90, prefetch=prefetch) or ())
    for kind in (False, True):
        free = [one for one in entries if one.prefetched is kind and not one.in_use]
        out, kept = ([one.used_at for one in free if (one.name in gone) is side] for side in (True, False))
        assert not out or not kept or max(out) <= min(kept)


@pytest.mark.parametrize(
    ("entries", "size", "prefetch", "gone"),
    [
        ([entry("a", 30, 1), entry("b", 30, 2)], 30, False, ["a"]),  # reads keep to 60 of 90
        ([entry("a", 30, 1), entry("b", 30, 2)], 30, True, []),  # the third is there for this
        ([entry("a", 60, 1), entry("p", 30, 2, prefetched=True)], 30, True, ["p"]),  # a prefetch pushes out no read
        ([entry("a", 60, 1, in_use=True)], 30, False, []),  # work that is being done may use the last third
        ([entry("a", 70, 1, in_use=True)], 30, False, None),
        ([entry("a", 10, 1), entry("p", 80, 9, prefetched=True)], 20, False, ["p"]),  # it had only borrowed
        ([entry("a", 60, 1)], 40, True, None),
        ([], 91, False, None),
    ],
)
def test_one_third_is_kept_for_what_is_prefetched(
    entries: list[Entry], size: int, prefetch: bool, gone: list[str] | None
) -> None:
    assert to_evict(entries, size, 90, prefetch=prefetch) == gone


def test_the_bound_follows_the_gpus_and_never_takes_more_than_half_the_disk() -> None:
    assert default_bytes(0, 1000 * GB) == default_bytes(1, 1000 * GB) == 6 * GB
    assert default_bytes(8, 1000 * GB) == 48 * GB
    assert default_bytes(8, 20 * GB) == 10 * GB


@dataclass
class Toy:
    """An artifact of one file; ``fails`` are raised by the first fetches."""

    word: str
    size: int = 30
    fails: list[Exception] = field(default_factory=list)
    fetched: int = 0

    @property
    def digest(self) -> Digest:
        return sha256(self.word.encode())

    def whole(self, folder: Path) -> bool:
        return (folder / "word").exists() and (folder / "word").read_text() == self.word

    def fetch(self, folder: Path) -> None:
        self.fetched += 1
        if self.fails:
            raise self.fails.pop(0)
        (folder / "word").write_text(self.word)


def another_process(folder: Path, bound: int = 90) -> Cache:
    """A cache object has a lease of its own, as a process has."""
    return Cache(folder, bound)


def held(cache: Cache) -> dict[str, bool]:
    return {one.name[:4]: one.in_use for one in cache.entries()}


def name(word: str) -> str:
    return sha256(word.encode()).removeprefix("sha256:")[:4]


def ended(cache: Cache) -> None:
    """What the kernel does when a process ends."""
    assert cache._lease is not None
    os.close(cache._lease)


def test_what_is_there_is_not_fetched_again_and_damage_is_mended(tmp_path: Path) -> None:
    toy = Toy("a")
    cache = Cache(tmp_path, 90)
    path = cache.open(toy)
    assert (path / "word").read_text() == "a"
    assert cache.open(toy) == another_process(tmp_path).open(toy) == path
    assert toy.fetched == 1
    (path / "word").write_text("rotten")
    assert (cache.open(toy) / "word").read_text() == "a"
    assert toy.fetched == 2


def test_the_oldest_goes_but_never_what_a_living_process_has_open(tmp_path: Path) -> None:
    first, second = another_process(tmp_path), another_process(tmp_path)
    first.open(Toy("a"))
    second.open(Toy("b"))
    ended(second)
    mine = another_process(tmp_path)
    mine.open(Toy("c"))  # 60 of 90 is for reads: b goes, though a is older
    assert held(mine) == {name("a"): True, name("c"): True}
    mine.open(Toy("d"))  # and the last third when nothing may go
    with pytest.raises(CacheFull, match=r"no room for .* GB are in use; raise PERENNIAL_CACHE_GB"):
        mine.open(Toy("e"))
    assert name("e") not in held(mine)
    ended(first)
    mine.open(Toy("e"))
    assert held(mine) == {name("c"): True, name("d"): True, name("e"): True}
    assert not (tmp_path / Toy("a").digest.removeprefix("sha256:")).exists()


def test_using_an_entry_makes_it_young(tmp_path: Path) -> None:
    old = another_process(tmp_path)
    for word in ("a", "b"):
        old.open(Toy(word))
    for at, word in enumerate(("a", "b")):
        os.utime(tmp_path / f"{Toy(word).digest.removeprefix('sha256:')}.json", ns=(at, at))
    old.open(Toy("a"))
    ended(old)
    mine = another_process(tmp_path)
    mine.open(Toy("c"))
    assert held(mine) == {name("a"): False, name("c"): True}


def test_prefetched_entries_live_in_their_third_until_they_are_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 90)
    for word in ("a", "b"):
        cache.open(Toy(word))
    soon, later, toy = Toy("soon"), Toy("later"), Toy("big", 31)
    assert cache.prefetch(soon)
    assert not cache.prefetch(later)  # this call still holds the third
    assert not cache.prefetch(toy)
    cache.release([soon.digest])
    assert held(cache)[name("soon")] is False
    assert cache.prefetch(later)
    cache.release([later.digest])
    assert set(held(cache)) == {name("a"), name("b"), name("later")}
    assert cache.open(later).is_dir()
    assert later.fetched == 1
    assert [one.prefetched for one in cache.entries()] == [False] * 3


def test_a_full_disk_evicts_what_nobody_uses_and_tries_once_more(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    old = another_process(tmp_path)
    old.open(Toy("a"))
    ended(old)
    cache = Cache(tmp_path, 90)
    cache.open(Toy("b", fails=[full]))
    assert set(held(cache)) == {name("b")}
    with pytest.raises(CacheFull, match=r"the disk is full .* put PERENNIAL_CACHE on another disk"):
        cache.open(Toy("c", fails=[full, full]))
    with pytest.raises(PermissionError):
        cache.open(Toy("d", fails=[PermissionError(errno.EACCES, "no")]))


def test_what_a_killed_process_left_half_is_counted_and_goes(tmp_path: Path) -> None:
    killed = another_process(tmp_path)
    half = Toy("half", fails=[OSError(errno.EIO, "killed")])
    with pytest.raises(OSError, match="killed"):
        killed.open(half)
    ended(killed)
    cache = Cache(tmp_path, 90)
    assert held(cache) == {name("half"): False}
    for word in ("a", "b"):
        cache.open(Toy(word))
    assert set(held(cache)) == {name("a"), name("b")}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(name("half"))]


def test_a_child_of_a_fork_has_a_lease_of_its_own(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 90)
    cache.open(Toy("a"))
    pid = os.fork()
    if pid == 0:
        cache.open(Toy("b"))
        os._exit(0 if all(one.in_use for one in cache.entries()) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert held(cache) == {name("a"): True, name("b"): False}


def test_a_cache_that_cannot_be_made_says_which_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match=r"cannot be made .Not a directory.; set PERENNIAL_CACHE"):
        Cache(tmp_path / "file" / "cache")
