"""Set-up of Airflow's database: migrated, and its pools made. One process, since each takes 3 s to import Airflow."""

from __future__ import annotations

from airflow.utils.db import upgradedb

from operators import pools

if __name__ == "__main__":
    upgradedb()
    pools.make()
