"""From references to specs: what each step of each DAG is asked to do."""
