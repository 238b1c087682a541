"""``make demo``: the whole loop on real flights, from raw records to a retrain that drift asked for."""
