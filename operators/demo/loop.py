"""The demo's way through the loop, stage by stage. It clicks where a person would click and waits for the rest."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from artifacts.clock import DataClock
from artifacts.refs import Ref, file_uri, join, key_digest, short
from artifacts.secret import without_password
from artifacts.store import write_bytes
from monitoring.skew_contract import SkewRef, SkewSpec
from operators import live
from operators.airflow_client import AirflowClient
from operators.calls import watch as calls
from operators.demo.display import Display, Say
from operators.demo.facts import FIRST_PARTITION, MODEL, SCRAMBLED, Facts
from operators.demo.watching import Watcher
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.plans.watch import logged
from operators.process import ProcessRunner
from operators.settings import platform
from operators.steps import PENDING, Skip, StepCall, plan
from operators.versions import Version, record, versions
from serving.contract import Announcement, PackageRef, ReplaySpec, ScrambleSpec
from serving.replay import replay
from training.contract import RegisterSpec, VersionRef

DAYS, MOST_DAYS = 10, 18
DAY = dt.timedelta(days=1)

ResultT = TypeVar("ResultT", bound=BaseModel)


class Loop:
    """One demo."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.row = pipeline(MODEL)
        self.book = ledger()
        self.facts = Facts(self.book)
        self.skewed: SkewRef | None = None
        self.airflow = AirflowClient(
            os.environ["PERENNIAL_AIRFLOW"],
            "demo",
            Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]),
        )
        self.watcher = Watcher(self.airflow, self.book, Path(os.environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"]))

    def run(self) -> None:
        """All stages, in order; each finds out for itself what has been done before."""
        self._clock()
        self._dags()
        self.features()
        self.first_model()
        self.first_release()
        self.replay_days()
        self.drift_retrain()
        self.scrambled_package()
        self.skew()

    def _clock(self) -> None:
        clock = DataClock(platform().clock, live.records())
        try:
            clock.now()
        except LookupError:
            clock.advance(self.row.calendar.as_of(FIRST_PARTITION))

    def _dags(self) -> None:
        wanted = {f"features__{self.row.repo.name}", *(f"{kind}__{MODEL}" for kind in ("retrain", "release", "watch"))}
        with self.display.stage("start") as say:
            self.watcher.until(lambda: wanted <= self.airflow.dags() or None, say)

    # --- the first model ---------------------------------------------------------------------------------------------

    def _by_hand(self, dag_id: str, conf: dict[str, object], say: Say) -> None:
        """Starts a run and waits for it; one with the same form that a killed demo has left running is as good."""
        for run in self.watcher.active(dag_id):
            if {name: run["conf"].get(name) for name in conf} == conf:
                self.watcher.run(dag_id, run["dag_run_id"], say)
                return
        self._quiet(dag_id, say)
        self.watcher.run(dag_id, self.airflow.trigger(dag_id, conf), say)

    def _quiet(self, dag_id: str, say: Say) -> None:
        """Waits until no run of a DAG is active."""
        self.watcher.until(lambda: not self.watcher.active(dag_id) or None, say)

    def features(self) -> None:
        """Builds the views from January on, ahead of the data clock (allowed under replay), and fills the online store."""
        calendar, repo = self.row.calendar, self.row.repo
        until = calendar.as_of(FIRST_PARTITION + MOST_DAYS * DAY).replace(minute=0)
        built, _ = live.built(repo.progress_record)
        if built.built_to is not None and built.built_to >= until:
            self.display.reuse("features", f"built to {built.built_to:%Y-%m-%dT%H:%MZ}")
            return
        conf: dict[str, object] = {
            "from": f"{calendar.starts(calendar.first):%Y-%m-%dT%H:%MZ}",
            "to": f"{until:%Y-%m-%dT%H:%MZ}",
        }
        with self.display.stage("features") as say:
            self._by_hand(f"features__{repo.name}", conf, say)

    def first_model(self) -> None:
        """Trains the model of 2013-08-31, as a person would with the form."""
        if self.facts.has_first():
            self.display.reuse("first model", f"version {self.facts.first().registered.version} is registered")
            return
        with self.display.stage("first model") as say:
            conf: dict[str, object] = {"partition": FIRST_PARTITION.isoformat(), "reason": "demo: the first model"}
            self._by_hand(f"retrain__{MODEL}", conf, say)
        self.facts.first()

    def _wait_for_release(self, stage: str, version: Version) -> None:
        if self.facts.released(version):
            self.display.reuse(stage, f"version {version.registered.version} has been judged")
            return
        with self.display.stage(stage) as say:
            if self.facts.broke_down(version) and not self.watcher.active(f"release__{MODEL}"):
                self.watcher.forgive(f"release__{MODEL}")
                number = version.registered.version
                self._by_hand(f"release__{MODEL}", {"version": number, "reason": "demo: its release failed"}, say)
            self.watcher.until(lambda: self.facts.released(version), say, f"release__{MODEL}")

    def first_release(self) -> None:
        """Waits for the release that the package's event has started."""
        self._wait_for_release("first release", self.facts.first())

    # --- replayed days ---------------------------------------------------------------------------------------------

    def _spec(self, first: dt.date, last: dt.date) -> ReplaySpec:
        settings, store = platform(), platform().store
        return ReplaySpec(
            model=MODEL,
            serving=self.row.serving,
            calendar=self.row.calendar,
            gateway=settings.gateway,
            token_file=Path(os.environ["PERENNIAL_GATEWAY_TOKEN_FILE"]),
            lake=self.row.repo.lake(store),
            views=self.row.repo.views(store),
            online=settings.online,
            log=file_uri(settings.state.absolute() / "log"),
            predictions=join(store, "predictions", MODEL),
            feedback=join(store, "feedback", MODEL),
            first=first,
            last=last,
            announcement=Announcement(
                airflow=os.environ["PERENNIAL_AIRFLOW"],
                username="compactor",
                password_file=Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]),
                asset=f"predictions/{MODEL}",
            ),
        )

    def replay_days(self) -> None:
        """Ten days of traffic, and more until drift has been decided, at most eighteen.

        A day is checked while the next one is played, and the one after that waits for it: a real day is long. The clock
        goes on while the retrain that drift asks for runs beside it.
        """
        last = FIRST_PARTITION + MOST_DAYS * DAY
        enough = FIRST_PARTITION + DAYS * DAY
        if live.now() >= self.row.calendar.as_of(enough) and self.facts.drift_decision():
            self.display.reuse("replay", f"checked through {enough}, and drift has been decided")
            return
        clock = DataClock(platform().clock, live.records())
        with self.display.stage("replay") as say:
            spec = self._spec(FIRST_PARTITION + DAY, last)

            def shown(fraction: float, words: str) -> None:
                say(min(fraction * MOST_DAYS / DAYS, 1.0), words)

            for closed in replay(spec, clock, shown):
                if closed.partition > spec.first:
                    self._await_check(closed.partition - DAY, say)
                if closed.partition >= enough:
                    self._await_check(closed.partition, say)
                    if self.facts.drift_decision():
                        return

    def _settled(self, partition: dt.date) -> bool | None:
        """Whether a day has been checked, or belongs to a version that another one has replaced meanwhile."""
        champion = live.routing(MODEL)[0].champion
        replaced = champion is not None and self.row.calendar.ends(partition) <= champion.promoted_at
        return replaced or self.facts.checked(partition) or None

    def _await_check(self, partition: dt.date, say: Say) -> None:
        share = (partition - FIRST_PARTITION).days / DAYS

        def checking(_fraction: float, words: str) -> None:
            say(min(share, 1.0), words)

        self.watcher.until(lambda: self._settled(partition), checking, f"watch__{MODEL}")

    # --- the retrain that drift asked for, and the package that must not pass ------------------------------------------

    def drift_retrain(self) -> None:
        """Waits for the retrain that the drift event has started, and for the verdict on its version."""
        if self.facts.drift_decision() is None:
            return
        if self.facts.retrain_end():
            self.display.reuse("drift retrain", "it has ended")
        else:
            with self.display.stage("drift retrain") as say:
                self.watcher.until(self.facts.retrain_end, say, f"retrain__{MODEL}")
        version = self.facts.drift_version()
        if version is not None:
            self._wait_for_release("drift release", version)

    def _step(self, kind: type[ResultT], call: StepCall, say: Say) -> ResultT:
        """Runs a step here, as a person at a notebook would; returns its result, which is of this kind."""
        planned = plan(call, {}, platform().store)
        if isinstance(planned, Skip):
            raise TypeError(planned.reason)
        name = call.module.rpartition(".")[2]
        say(0.5, name)
        found = ProcessRunner(planned, self.book, platform().state / "locks", {"dag": "demo", "task": name}).run()
        return kind.model_validate(found)

    def _scrambled(self, say: Say) -> Version:
        """Registers a scrambled copy of the newest version, as a careless person with a notebook would."""
        source = versions(self.book, MODEL)[-1]
        packed = self._step(
            PackageRef,
            StepCall(
                "serving.scramble",
                "serving",
                lambda: ScrambleSpec(package=source.package_ref(), output=PENDING),
                PackageRef,
                output=lambda _, key: join(platform().store, "packages", MODEL, short(key)),
            ),
            say,
        )
        key = key_digest({"scrambled": packed.digest})
        candidate = source.evaluation_fit_ref().model_copy(update={"training_key": key})
        spec = RegisterSpec(
            model=MODEL,
            tracking_uri=without_password(platform().mlflow),
            partition=packed.partition,
            trigger="manual",
            candidate=candidate,
            final=source.final_fit_ref().model_copy(update={"training_key": key}),
            evaluation=source.evaluation_ref().model_copy(update={"training_key": key}),
            package=Ref(uri=packed.uri, digest=packed.digest),
            onnx_digest=packed.onnx_digest,
            verdicts=(),
        )
        call = StepCall("training.register", "training", lambda: spec, VersionRef)
        registered = self._step(VersionRef, call, say)
        result = join(platform().store, "packages", MODEL, f"{short(packed.digest)}.json")
        write_bytes(result, packed.model_dump_json(indent=1).encode())
        version = source.model_copy(
            update={"registered": registered, "package": result, "trigger": SCRAMBLED, "decision": None}
        )
        record(self.book, version)
        return version

    def scrambled_package(self) -> None:
        """Asks for the release of a scrambled package by hand; the evidence must keep it out."""
        version = self.facts.scrambled_version()
        if version is not None and self.facts.released(version):
            self.display.reuse("scrambled", "it has been judged")
            return
        with self.display.stage("scrambled") as say:
            self._quiet(f"release__{MODEL}", say)  # else the run that ends would find this version and take it
            version = version or self._scrambled(say)
            conf: dict[str, object] = {
                "version": version.registered.version,
                "reason": "demo: a scrambled package must not pass",
            }
            self._by_hand(f"release__{MODEL}", conf, say)
            self.watcher.until(lambda: self.facts.released(version), say)

    # --- served against offline -----------------------------------------------------------------------------------

    def skew(self) -> None:
        """Compares what was served with what the drift retrain's training set says of the same requests."""
        newer, first = self.facts.drift_version(), self.facts.first()
        end = self.facts.retrain_end()
        if end is None or newer is None:
            return
        dataset = newer.final_fit_ref().dataset
        log = [ref for ref in logged(self.row, platform().store) if ref.partition <= dataset.last]
        if not log:
            return
        spec = SkewSpec(
            model=MODEL, package=first.package_ref(), predictions=tuple(log), dataset=dataset, output=PENDING
        )
        with self.display.stage("served vs offline") as say:
            self.skewed = self._step(SkewRef, calls.skew(self.row, spec), say)
