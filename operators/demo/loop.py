"""The demo's way through the loop, stage by stage. It clicks where a person would click and waits for the rest."""

from __future__ import annotations

import datetime as dt
import functools
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from artifacts.clock import DataClock
from artifacts.refs import Ref, file_uri, join, key_digest, short
from artifacts.secret import without_password
from artifacts.store import write_bytes
from monitoring.contract import SkewRef, SkewSpec
from operators import live
from operators.airflow_client import AirflowClient
from operators.demo.display import Display, Say
from operators.demo.watching import running_step, wait_for_run, wait_until
from operators.ledger import DECISION, FAILED, Entry, ledger
from operators.pipelines import pipeline
from operators.plans.watch import logged
from operators.process import ProcessRunner
from operators.settings import platform
from operators.steps import PENDING, Skip, StepCall, plan
from operators.tasks.release import RELEASE
from operators.tasks.watch import DRIFT
from operators.versions import Version, record, versions
from serving.contract import Announcement, PackageRef, ReplaySpec, ScrambleSpec
from serving.replay import replay
from training.contract import RegisterSpec, VersionRef

MODEL = "flight_delay"
FIRST_PARTITION = dt.date(2013, 8, 31)
DAYS, MOST_DAYS = 10, 18
DAY = dt.timedelta(days=1)
STARTED_SECONDS = 900.0

ResultT = TypeVar("ResultT", bound=BaseModel)


class Loop:
    """One demo."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.row = pipeline(MODEL)
        self.book = ledger()
        self.airflow = AirflowClient(
            os.environ["PERENNIAL_AIRFLOW"],
            "demo",
            Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]),
        )

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
            wait_until(lambda: wanted <= self.airflow.dags() or None, self.airflow, (), self.book, say, STARTED_SECONDS)

    # --- the first model ---------------------------------------------------------------------------------------------

    def _by_hand(self, dag_id: str, conf: dict[str, object], say: Say) -> None:
        """Starts a run and waits for it; one with the same form that a killed demo has left running is as good."""
        for run in self._active(dag_id):
            if {name: run["conf"].get(name) for name in conf} == conf:
                wait_for_run(self.airflow, dag_id, run["dag_run_id"], self.book, say)
                return
        self._quiet(dag_id, say)
        wait_for_run(self.airflow, dag_id, self.airflow.trigger(dag_id, conf), self.book, say)

    def _active(self, dag_id: str) -> list[dict[str, Any]]:
        return [run for run in self.airflow.runs(dag_id) if run["state"] in ("running", "queued")]

    def _quiet(self, dag_id: str, say: Say) -> None:
        """Waits until no run of a DAG is active."""
        wait_until(lambda: not self._active(dag_id) or None, self.airflow, (), self.book, say, STARTED_SECONDS)

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

    def _version_for(self, partition: dt.date) -> Version | None:
        found = [version for version in versions(self.book, MODEL) if version.registered.partition == partition]
        return found[0] if found else None

    def first_model(self) -> None:
        """Trains the model of 2013-08-31, as a person would with the form."""
        if self._version_for(FIRST_PARTITION):
            self.display.reuse("first model", f"version {self.first().registered.version} is registered")
            return
        with self.display.stage("first model") as say:
            conf: dict[str, object] = {"partition": FIRST_PARTITION.isoformat(), "reason": "demo: the first model"}
            self._by_hand(f"retrain__{MODEL}", conf, say)
        self.first()

    def first(self) -> Version:
        version = self._version_for(FIRST_PARTITION)
        if version is None:
            raise RuntimeError(
                f"the gates refused the first model: {[entry.body['reasons'] for entry in self.book.entries('gate', MODEL)]}"
            )
        return version

    def released(self, version: Version) -> Entry | None:
        """How the release of a version ended, or None when it has not."""
        digest = version.registered.package.digest
        rows = [
            entry
            for entry in self.book.entries(RELEASE, MODEL)
            if entry.body["package"] == digest and entry.body["outcome"] != "failed"
        ]
        return rows[0] if rows else None

    def _wait_for_release(self, stage: str, version: Version) -> None:
        if self.released(version):
            self.display.reuse(stage, f"version {version.registered.version} has been judged")
            return
        with self.display.stage(stage) as say:
            if self._gave_up(version):
                number = version.registered.version
                self._by_hand(f"release__{MODEL}", {"version": number, "reason": "demo: its release failed"}, say)
            wait_until(
                lambda: self.released(version), self.airflow, (f"release__{MODEL}",), self.book, say, STARTED_SECONDS
            )

    def _gave_up(self, version: Version) -> bool:
        """Whether a release of the version has failed, and none is under way."""
        digest = version.registered.package.digest
        rows = [entry for entry in self.book.entries(RELEASE, MODEL) if entry.body["package"] == digest]
        return bool(rows) and rows[-1].body["outcome"] == "failed" and not self._active(f"release__{MODEL}")

    def first_release(self) -> None:
        """Waits for the release that the package's event has started."""
        self._wait_for_release("first release", self.first())

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

    def drift_decision(self) -> Entry | None:
        """The newest decision that drift has brought about, those left out whose run broke down; None when there is none."""
        broken = {decision for decision, end in self.book.closures(MODEL).items() if end.body["outcome"] == FAILED}
        found = [
            entry
            for entry in self.book.entries(DECISION, MODEL)
            if entry.body["trigger"] == "drift" and entry.id not in broken
        ]
        return found[-1] if found else None

    def _checked(self, partition: dt.date) -> Entry | None:
        rows = [entry for entry in self.book.entries(DRIFT, MODEL) if not entry.body.get("failed")]
        return next((entry for entry in rows if entry.body["partition"] == partition.isoformat()), None)

    def replay_days(self) -> None:
        """Ten days of traffic, and more until drift has been decided, at most eighteen.

        The data clock stands still while the watcher checks a day that has closed, since a real day is long; it goes on
        while the retrain that drift asks for runs beside it.
        """
        last = FIRST_PARTITION + MOST_DAYS * DAY
        enough = FIRST_PARTITION + DAYS * DAY
        if live.now() >= self.row.calendar.as_of(enough) and self.drift_decision():
            self.display.reuse("replay", f"checked through {enough}, and drift has been decided")
            return
        clock = DataClock(platform().clock, live.records())
        with self.display.stage("replay") as say:
            spec = self._spec(FIRST_PARTITION + DAY, last)

            def shown(fraction: float, words: str) -> None:
                say(min(fraction * MOST_DAYS / DAYS, 1.0), words)

            for closed in replay(spec, clock, shown):
                self._await_check(closed.partition, say)
                if closed.partition >= enough and self.drift_decision():
                    return

    def _settled(self, partition: dt.date) -> bool | None:
        """Whether a day has been checked, or belongs to a version that another one has replaced meanwhile."""
        champion = live.routing(MODEL)[0].champion
        replaced = champion is not None and self.row.calendar.ends(partition) <= champion.promoted_at
        return True if replaced or self._checked(partition) else None

    def _await_check(self, partition: dt.date, say: Say) -> None:
        share = (partition - FIRST_PARTITION).days / DAYS

        def checking(_fraction: float, words: str) -> None:
            say(min(share, 1.0), words)

        settled = functools.partial(self._settled, partition)
        wait_until(settled, self.airflow, (f"watch__{MODEL}",), self.book, checking, STARTED_SECONDS)

    # --- the retrain that drift asked for, and the package that must not pass ------------------------------------------

    def retrain_end(self) -> Entry | None:
        """How the drift retrain ended: trained, refused or failed."""
        decision = self.drift_decision()
        return self.book.closures(MODEL).get(decision.id) if decision else None

    def drift_version(self) -> Version | None:
        """The version that the drift retrain made."""
        decision = self.drift_decision()
        return next(
            (version for version in versions(self.book, MODEL) if decision and version.decision == decision.id), None
        )

    def drift_retrain(self) -> None:
        """Waits for the retrain that the drift event has started, and for the verdict on its version."""
        if self.drift_decision() is None:
            return
        if self.retrain_end():
            self.display.reuse("drift retrain", "it has ended")
        else:
            with self.display.stage("drift retrain") as say:
                wait_until(self.retrain_end, self.airflow, (f"retrain__{MODEL}",), self.book, say, STARTED_SECONDS)
        version = self.drift_version()
        if version is not None:
            self._wait_for_release("drift release", version)

    def _step(self, call: StepCall, name: str, say: Say) -> Ref | BaseModel:
        planned = plan(call, {}, platform().store)
        if isinstance(planned, Skip):
            raise TypeError(planned.reason)
        step = running_step(self.book)
        say(0.5, f"{name} {step[2] if step else ''}")
        return ProcessRunner(planned, self.book, platform().state / "locks", {"dag": "demo", "task": name}).run()

    def _scrambled(self, say: Say) -> Version:
        """Registers a scrambled copy of the newest version, as a careless person with a notebook would."""
        source = versions(self.book, MODEL)[-1]
        packed = self._step(
            StepCall(
                "serving.scramble",
                "serving",
                lambda: ScrambleSpec(package=source.package_ref(), output=PENDING),
                PackageRef,
                output=lambda _, key: join(platform().store, "packages", MODEL, short(key)),
            ),
            "scramble",
            say,
        )
        assert isinstance(packed, PackageRef)  # noqa: S101  the call's own result type
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
        registered = self._step(call, "register", say)
        assert isinstance(registered, VersionRef)  # noqa: S101  the call's own result type
        result = join(platform().store, "packages", MODEL, f"{short(packed.digest)}.json")
        write_bytes(result, packed.model_dump_json(indent=1).encode())
        version = source.model_copy(
            update={"registered": registered, "package": result, "trigger": "scrambled", "decision": None}
        )
        record(self.book, version)
        return version

    def scrambled_version(self) -> Version | None:
        """The scrambled version, once it is registered."""
        return next((version for version in versions(self.book, MODEL) if version.trigger == "scrambled"), None)

    def scrambled_package(self) -> None:
        """Asks for the release of a scrambled package by hand; the evidence must keep it out."""
        version = self.scrambled_version()
        if version is not None and self.released(version):
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
            wait_until(lambda: self.released(version), self.airflow, (), self.book, say, STARTED_SECONDS)

    # --- served against offline -----------------------------------------------------------------------------------

    def skew(self) -> SkewRef | None:
        """Compares what was served with what the drift retrain's training set says of the same requests."""
        newer, first = self.drift_version(), self.first()
        end = self.retrain_end()
        if end is None or newer is None:
            return None
        dataset = newer.final_fit_ref().dataset
        log = [ref for ref in logged(self.row, platform().store) if ref.partition <= dataset.last]
        if not log:
            return None
        spec = SkewSpec(
            model=MODEL, package=first.package_ref(), predictions=tuple(log), dataset=dataset, output=PENDING
        )
        call = StepCall(
            "monitoring.skew",
            "monitoring",
            lambda: spec,
            SkewRef,
            output=lambda _, key: join(platform().store, "skew", MODEL, short(key)),
        )
        with self.display.stage("served vs offline") as say:
            found = self._step(call, "skew", say)
        assert isinstance(found, SkewRef)  # noqa: S101  the call's own result type
        self.skewed = found
        return found

    skewed: SkewRef | None = None
