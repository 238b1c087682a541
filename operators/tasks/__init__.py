"""What the light tasks of each DAG do: they decide, and write decisions into the ledger and the records."""
