"""Pages that Perennial adds to Airflow's UI."""
