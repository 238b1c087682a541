"""What the gates get from outside the run: the tree as git sees it, and a champion that cannot be read."""

from __future__ import annotations

import datetime as dt
import subprocess

import pytest

from artifacts.refs import Ref, file_uri, sha256
from operators import verdicts
from operators.versions import Version
from training.contract import VersionRef


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_git_says_which_commit_runs_and_whether_it_was_changed_since(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    assert verdicts.commit() is None
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "first")
    clean = verdicts.commit()
    assert clean is not None
    assert len(clean) == 12
    (tmp_path / "code.py").write_text("x = 2\n")
    assert verdicts.commit() == f"{clean}-dirty"


def test_a_champion_whose_record_is_gone_is_said_to_be_gone(tmp_path):
    lost = file_uri(tmp_path / "lost.json")
    registered = VersionRef(
        model="flight_delay",
        version=1,
        run_id="run",
        training_key=sha256(b"key"),
        package=Ref(uri="file:///package", digest=sha256(b"package")),
        partition=dt.date(2013, 8, 31),
        created_at=dt.datetime(2013, 9, 1, tzinfo=dt.UTC),
    )
    version = Version(
        registered=registered, evaluation_fit=lost, final_fit=lost, evaluation=lost, package=lost, trigger="manual"
    )
    with pytest.raises(LookupError, match="the FitRef of a registered version is gone; restore it"):
        version.evaluation_fit_ref()
