"""A writer that is killed at any moment of a publication leaves the old version or the new one, whole."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from artifacts.settings import ROOT

DRIVER = """
import os, signal, sys
from pathlib import Path
from artifacts.refs import file_uri
from artifacts.store import publish, read

folder = Path(sys.argv[1])
uri = file_uri(folder / "days" / "2013-08-31")

def write(word):
    with publish(uri, "toy") as draft:
        (draft.path / "one.txt").write_text(word)
        (draft.path / "sub").mkdir()
        (draft.path / "sub" / "two.txt").write_text(word * 1000)

left = -1                                   # moments until the kill; the hook cannot be removed, only disarmed
def moment(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def audited(event, _):
    if left > 0 and event in {"open", "os.mkdir", "os.rename", "os.remove", "os.scandir"}:
        moment()
sys.addaudithook(audited)
sync = os.fsync
os.fsync = lambda descriptor: (moment(), sync(descriptor))

write("old")
ends = []
for number in range(1, 500):
    pid = os.fork()
    if pid == 0:
        left = number
        write("new")
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    found = read(uri)                       # raises when what lies there is not whole
    words = {found.file("one.txt").read_text(), found.file("sub/two.txt").read_text()[:3]}
    assert len(words) == 1, words
    ends.append(words.pop())
    if os.WIFEXITED(status):
        break
    write("old")                            # and the place is not blocked for the next writer
print(ends.count("old"), ends.count("new"), os.WIFEXITED(status))
"""


def test_a_writer_that_is_killed_leaves_a_whole_version(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    old, new, ended = done.stdout.split()
    assert ended == "True"
    assert int(old) >= 10  # it was killed at many moments before the manifest was there
    assert int(new) >= 2  # and after it
