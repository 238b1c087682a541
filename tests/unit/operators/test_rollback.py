"""One command goes back: it starts the run that a click would start, waits for its end and says what answers now."""

import pytest

from operators import live, rollback
from operators.pipelines import pipeline
from operators.rollout import promoted, rolled_back
from serving.contract import Routing
from tests.make import control

ROW = pipeline("flight_delay")


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch)
    monkeypatch.setattr(rollback, "POLL_SECONDS", 0)


class Airflow:
    """An Airflow whose run ends as it is told, and then moves the route as ``settle`` would."""

    def __init__(self, *states):
        self.states, self.asked = list(states), []

    def trigger(self, dag_id, conf):
        self.asked.append((dag_id, conf))
        return "manual__1"

    def run(self, *_):
        state = self.states.pop(0)
        if state == "success":
            routing, version = live.routing(ROW.model)
            after = rolled_back(routing, control.NOON)
            live.records().put(Routing.record(ROW.model), after.model_dump(mode="json"), version)
        return {"state": state}


def two_versions():
    routing = promoted(promoted(Routing(model=ROW.model), control.deployed(1)), control.deployed(2))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)


@pytest.mark.covers("field-reports 79")
def test_one_command_goes_back_and_says_what_answers(capsys):
    two_versions()
    airflow = Airflow("queued", "running", "success")
    assert rollback.main([ROW.model, "--reason", "latency"], airflow) == 0
    assert airflow.asked == [("release__flight_delay", {"rollback": True, "reason": "latency"})]
    assert "flight_delay_v1 answers 'flight_delay' now" in capsys.readouterr().out


def test_a_run_that_fails_is_no_rollback(capsys):
    two_versions()
    assert rollback.main([ROW.model, "--reason", "latency"], Airflow("running", "failed")) == 1
    assert "flight_delay_v2 answers 'flight_delay' now; the rollback to flight_delay_v1 ended as failed" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("argv", "words"), [(["--reason", " "], "--reason: is empty"), (["--reason", "r"], "has no previous version")]
)
def test_what_cannot_be_done_is_said_before_anything_is_started(argv, words, capsys):
    airflow = Airflow()
    with pytest.raises(SystemExit):
        rollback.main([ROW.model, *argv], airflow)
    assert words in capsys.readouterr().err
    assert airflow.asked == []


def test_a_run_that_does_not_end_is_named():
    two_versions()
    with pytest.raises(TimeoutError, match=r"manual__1 of release__flight_delay is running after 0 s"):
        rollback.roll_back(Airflow("running"), ROW.model, "latency", patience=0)
