"""The convention that every benchmark follows: a table for people, ``{"name", "figures", "targets"}`` for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path


def parser(name: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; one with more adds them and gives what it parsed to ``report``."""
    options = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    options.add_argument("--json", type=Path, help="where to write the figures")
    return options


def report(
    name: str, figures: Mapping[str, float], targets: Mapping[str, str], asked: argparse.Namespace | None = None
) -> None:
    """Prints the figures beside their targets and writes them to the file that ``--json`` names."""
    arguments = asked or parser(name).parse_args()
    width = max(map(len, figures))
    for key, value in figures.items():
        print(f"{key:<{width}}  {value:>12.4g}  {('target ' + targets[key]) if key in targets else ''}".rstrip())
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"name": name, "figures": dict(figures), "targets": dict(targets)}, indent=1)
        )
