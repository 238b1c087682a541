"""The convention that every benchmark follows: a table for people, ``{"name", "figures", "targets"}`` for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path


def report(name: str, figures: Mapping[str, float], targets: Mapping[str, str]) -> None:
    """Prints the figures beside their targets and writes them to the file that ``--json`` names."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments, _ = parser.parse_known_args()  # a benchmark may have words of its own
    width = max(map(len, figures))
    for key, value in figures.items():
        print(f"{key:<{width}}  {value:>12.4g}  {('target ' + targets[key]) if key in targets else ''}".rstrip())
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"name": name, "figures": dict(figures), "targets": dict(targets)}, indent=1)
        )
