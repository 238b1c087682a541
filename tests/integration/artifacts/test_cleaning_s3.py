"""Cleaning on a real S3 server: replaced attempts go after the grace, the named one and fresh ones stay."""

from __future__ import annotations

import datetime as dt

from artifacts.cleaning import clean
from artifacts.refs import Uri, join
from artifacts.store import manifest, objects, publish, read

DAY = dt.timedelta(days=1)


def put(uri: Uri, word: str) -> None:
    with publish(uri, "toy") as draft:
        (draft.path / "word").write_text(word)


def test_replaced_attempts_go_after_the_grace(lake: Uri) -> None:
    uri = join(lake, "days", "2013-08-31")
    put(uri, "old"), put(uri, "new")
    now = dt.datetime.now(dt.UTC)
    assert clean(lake, DAY, now).attempts == ()
    removed = clean(lake, DAY, now + 2 * DAY).attempts
    found = manifest(uri)
    assert found is not None
    assert [name.rpartition("/")[0] for name in removed] == [uri]
    assert set(objects(uri)) == {"manifest.json", f"{found.attempt}/word"}
    assert read(uri).file("word").read_text() == "new"
