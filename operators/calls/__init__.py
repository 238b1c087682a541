"""The step calls of each DAG: which module, which image, and the spec from what earlier tasks returned."""
