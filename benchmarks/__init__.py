"""Measurements: ``python -m benchmarks.<name> [--json PATH]``. Each claim of speed is one module that prints both sides."""
