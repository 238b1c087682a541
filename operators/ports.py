"""Free loopback ports, remembered, so that links stay the same from one start to the next."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"


def free(port: int) -> bool:
    """Whether a server could listen on a loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def unused(count: int) -> tuple[int, ...]:
    """Distinct free loopback ports, chosen by the kernel."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for one in sockets:  # all are bound before any is let go, so no number comes twice
            one.bind((LOOPBACK, 0))
        return tuple(int(one.getsockname()[1]) for one in sockets)


def remembered(path: Path) -> dict[str, int]:
    """The ports that an earlier start chose; empty when there was none or the file is not readable."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: port for name, port in found.items() if isinstance(port, int)} if isinstance(found, dict) else {}


def pick(names: Iterable[str] | Mapping[str, int], path: Path, *, in_use: bool = False) -> dict[str, int]:
    """A port per name: the remembered one, then the wished one (a mapping's value), then any free one; written to ``path``.

    A remembered port that somebody uses is given up, unless ``in_use`` says that the user is our own running stack.
    """
    wanted = tuple(names)
    wishes = dict(names) if isinstance(names, Mapping) else {}
    known = remembered(path)
    chosen: dict[str, int] = {}
    for name in wanted:
        for port in (known.get(name), wishes.get(name)):
            if port and port not in chosen.values() and ((in_use and port == known.get(name)) or free(port)):
                chosen[name] = port
                break
    fresh = iter(unused(len(wanted) - len(chosen)))
    ports = {name: chosen.get(name) or next(fresh) for name in wanted}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps({**known, **ports}, indent=1, sort_keys=True))
    temporary.replace(path)
    return ports
