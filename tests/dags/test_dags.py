"""Every DAG file makes the DAGs that the rows say, takes the house defaults, and imports nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.settings import ROOT
from operators.environment import PORTS, environment
from operators.pages import load_dags, wiring
from operators.pipelines import FEATURE_REPOS, PIPELINES
from operators.pools import BACKFILL, BACKFILL_SLOTS

HEAVY = (
    "torch", "pyspark", "great_expectations", "evidently", "onnx", "onnxruntime", "pandas", "numpy", "scipy", "mlflow",
    "feast", "lightgbm", "kubernetes",
)  # fmt: skip
EXPECTED = {
    "features.py": {f"features__{repo.name}" for repo in FEATURE_REPOS},
    "retrain.py": {f"{kind}__{row.model}" for row in PIPELINES for kind in ("retrain", "backfill")},
    "release.py": {f"release__{row.model}" for row in PIPELINES},
    "approve.py": {f"approve__{row.model}" for row in PIPELINES},
    "watch.py": {f"watch__{row.model}" for row in PIPELINES},
    "sweep.py": {"sweep"},
}


@pytest.fixture(scope="module")
def dags():
    return load_dags(ROOT / "dags")


def test_each_file_makes_the_dags_of_the_rows(dags):
    made: dict[str, set[str]] = {}
    for dag_id, dag in dags.items():
        made.setdefault(Path(dag.fileloc).name, set()).add(dag_id)
    assert made == EXPECTED
    assert {path.name for path in (ROOT / "dags").glob("*.py")} == set(EXPECTED)


def test_each_dag_has_a_page_and_a_runbook(dags):
    for dag in dags.values():
        assert "| When it fails |" in dag.doc_md
        runbook = ROOT / "docs" / "runbooks" / Path(dag.fileloc).with_suffix(".md").name
        assert runbook.is_file()
        assert f"docs/runbooks/{runbook.name}" in dag.doc_md
        tasks = {task.task_id for task in dag.tasks}
        named = {
            word
            for line in runbook.read_text().splitlines()
            if line.startswith("| `")
            for word in line.split("|")[1].split("`")[1::2]
        }
        assert named <= tasks


@pytest.mark.covers("field-reports 43")
def test_runs_do_not_overlap_and_depend_on_no_past(dags):
    for dag in dags.values():
        assert dag.max_active_runs == 1 or dag.dag_id.startswith("approve__")  # its questions wait for days
        assert dag.catchup is False
        assert dag.start_date is None
        assert all(not task.depends_on_past for task in dag.tasks)


@pytest.mark.covers("field-reports 42")
def test_a_backfill_takes_one_slot_of_its_own_pool_and_a_daily_run_none_of_it(dags):
    made = environment(ROOT, ROOT, dict.fromkeys(PORTS, 1), dict.fromkeys(("fernet", "api", "jwt"), ""), "wall", "on")
    slots = int(made["AIRFLOW__CORE__PARALLELISM"])
    assert slots > BACKFILL_SLOTS
    for name, dag in dags.items():
        inside = name.startswith("backfill__")
        assert {task.pool == BACKFILL for task in dag.tasks} == {inside}, name
        if inside:  # a weight of its own is the least there is: Airflow's default counts what follows as well
            assert {(task.priority_weight, str(task.weight_rule)) for task in dag.tasks} == {(1, "absolute")}


def test_a_backfill_has_the_tasks_of_a_daily_run_and_wakes_no_release(dags):
    for row in PIPELINES:
        daily, past = wiring(dags[f"retrain__{row.model}"]), wiring(dags[f"backfill__{row.model}"])
        assert [line.split(" => ")[0] for line in daily] == [line.split(" => ")[0] for line in past]
        assert any(f"package/{row.model}" in line for line in daily)
        assert not any(f"package/{row.model}" in line for line in past)


def test_only_cron_is_switched_off():
    program = (
        "import os; os.environ['PERENNIAL_SCHEDULE'] = 'off'\n"
        "from artifacts.settings import ROOT; from operators.pages import load_dags; dags = load_dags(ROOT / 'dags')\n"
        "import json; print(json.dumps({name: type(dag.timetable).__name__ for name, dag in dags.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["features__flights"] == "NullTimetable"
    assert found["sweep"] == "NullTimetable"
    assert found["retrain__flight_delay"] == "AssetTriggeredTimetable"
    assert found["release__flight_delay"] == "AssetTriggeredTimetable"


def test_nothing_heavy_is_imported_at_parse():
    program = (
        "import sys; from artifacts.settings import ROOT; from operators.pages import load_dags; load_dags(ROOT / 'dags')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


WIRED = (
    "features__flights",
    *(f"{kind}__{row.model}" for row in PIPELINES for kind in ("retrain", "release", "approve", "watch")),
    "sweep",
)


@pytest.mark.parametrize("kind", WIRED)
def test_wiring_is_as_agreed(dags, kind):
    golden = ROOT / "tests" / "golden" / "dags" / f"{kind}.txt"
    text = "\n".join(wiring(dags[kind])) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert golden.read_text() == text


@pytest.mark.covers("field-reports 35", "field-reports 36", "field-reports 37")
def test_no_file_reads_a_logical_date():
    for folder in ("dags", "operators"):
        for path in (ROOT / folder).rglob("*.py"):
            for word in (
                "{{ ds",
                "{{ ts",
                'context["logical_date"]',
                'context["partition_key"]',
                "data_interval_start",
                "prev_start_date_success",
                "prev_data_interval",
                "prev_execution_date",
                "prev_end_date_success",
            ):
                assert word not in path.read_text(), f"{path}: {word}"


def test_no_dag_or_plugin_file_hides_a_package():
    """Airflow imports these files by their bare name, so a name that is taken replaces the package for everybody."""
    packages = {path.name for path in ROOT.iterdir() if path.is_dir()} | set(sys.stdlib_module_names)
    for folder in ("dags", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.stem == "__init__" or path.stem not in packages, path
