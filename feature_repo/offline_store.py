"""Feast's door to the as-of join: an offline store by class path, ``feature_repo.offline_store.AsOfOfflineStore``.

It differs from Feast's own stores where those are wrong: a row is used only from its available time
(``created_timestamp_column``) on, whether or not ``filter_by_created_timestamp`` is asked for; entity rows come back all,
once each and in their order; ties have one winner. Spark starts with the first question about history: whoever only reads
online opens the same configuration and loads neither pyspark nor dask.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from feast import FeatureView
from feast.data_source import DataSource
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.feature_view import DUMMY_ENTITY_ID, DUMMY_ENTITY_VAL
from feast.infra.offline_stores.file_source import FileSource, SavedDatasetFileStorage
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob, RetrievalMetadata
from feast.infra.registry.base_registry import BaseRegistry
from feast.on_demand_feature_view import OnDemandFeatureView
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.saved_dataset import SavedDatasetStorage
from feast.utils import (
    _get_requested_feature_views_to_features_dict,
    _get_requested_on_demand_feature_views,
    compute_non_entity_date_range,
)

from artifacts.step import DataFault

ARTIFACTS_TAG = "artifacts"
DELAY_TAG = "delay_seconds"


class AsOfOfflineStoreConfig(FeastConfigBaseModel):
    """Feast's configuration of this store; how Spark runs is in ``PERENNIAL_SPARK_*``."""

    type: Literal["feature_repo.offline_store.AsOfOfflineStore"] = "feature_repo.offline_store.AsOfOfflineStore"
    require_available_time: bool = False
    """Refuse views whose source names no ``created_timestamp_column``: of those nobody knows what was known when."""
    ages: bool = False
    """Also give ``<view>__age`` for each view: the seconds between the instant and the event of the row used."""


class AsOfJob(RetrievalJob):
    """A retrieval that is computed when it is asked for its rows."""

    def __init__(
        self,
        table: Callable[[], pa.Table],
        *,
        frame: Callable[[], Any] | None = None,
        full_feature_names: bool = False,
        on_demand: list[OnDemandFeatureView] | None = None,
        metadata: Callable[[], RetrievalMetadata] | None = None,
        repo_path: Path | None = None,
    ) -> None:
        self._table = table
        self._frame = frame
        self._full_feature_names = full_feature_names
        self._on_demand = on_demand or []
        self._metadata = metadata
        self._repo_path = repo_path

    @property
    def full_feature_names(self) -> bool:
        return self._full_feature_names

    @property
    def on_demand_feature_views(self) -> list[OnDemandFeatureView]:
        return self._on_demand

    @property
    def metadata(self) -> RetrievalMetadata | None:
        return self._metadata() if self._metadata else None

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:  # noqa: ARG002  Feast's signature
        return self._table()

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:  # noqa: ARG002  Feast's signature
        return self._table().to_pandas()

    def to_spark_df(self) -> Any:
        """The rows as a Spark frame, in no order and without on-demand features."""
        if self._frame is None:
            raise NotImplementedError("to_spark_df: this retrieval has no Spark frame; use to_arrow")
        return self._frame()

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:  # noqa: ARG002, FBT001, FBT002  Feast's signature
        """Writes the rows, on-demand features included, to one Parquet file, or into a folder when no suffix is given."""
        if not isinstance(storage, SavedDatasetFileStorage):
            raise DataFault([f"storage: is a {type(storage).__name__}, this store saves to a SavedDatasetFileStorage"])
        path = Path(FileSource.get_uri_for_file_path(self._repo_path, storage.file_options.uri).removeprefix("file://"))
        if path.exists() and not allow_overwrite:
            raise SavedDatasetLocationAlreadyExists(location=storage.file_options.uri)
        file = path if path.suffix == ".parquet" else path / "rows.parquet"
        rows = self.to_arrow()
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file, coerce_timestamps="us", allow_truncated_timestamps=True)


class AsOfOfflineStore(OfflineStore):
    """Point-in-time retrieval by feature_repo/asof.py from Parquet file sources."""

    supports_filter_by_created_timestamp = True

    @staticmethod
    def get_historical_features(
        config: RepoConfig,
        feature_views: list[FeatureView],
        feature_refs: list[str],
        entity_df: Any,
        registry: BaseRegistry,
        project: str,
        full_feature_names: bool = False,  # noqa: FBT001, FBT002  Feast's signature
        *,
        start_date: dt.datetime | None = None,
        end_date: dt.datetime | None = None,
        filter_by_created_timestamp: bool = True,  # noqa: ARG004  always so; see the module
    ) -> RetrievalJob:
        """The features of each entity row as they were known at its instant.

        ``entity_df``: a pandas frame, a Spark frame or a SQL query; None: one row per entity seen in [start_date, end_date],
        as of ``end_date``. Raises DataFault with a line per problem of the entity frame or of a source.
        """
        engine = _engine()
        session = engine.spark.running(engine.SESSION)
        views = _wanted(feature_views, feature_refs, project, registry, full_names=full_feature_names)
        span: Any = (None, None)
        if entity_df is None:
            start, end = compute_non_entity_date_range(feature_views, start_date=start_date, end_date=end_date)
            entities = engine.entities_seen(engine.SourceReader(session, config.repo_path), views, start, end)
            span = (end, end)
        elif isinstance(entity_df, pd.DataFrame):
            keys = {key for view in views for key in view.keys}
            entities, span = engine.entities_from_pandas(session, entity_df, keys)
        else:
            entities = engine.entities_from_spark(session.sql(entity_df) if isinstance(entity_df, str) else entity_df)
        options = config.offline_store
        history = engine.join(
            session, entities, views, config.repo_path, span, strict=options.require_available_time, ages=options.ages
        )

        def metadata() -> RetrievalMetadata:
            first, last = (start, end) if entity_df is None else history.span()
            others = [name for name in entities.names if name != entities.when]
            return RetrievalMetadata(feature_refs, others, first, last)

        return AsOfJob(
            history.table,
            frame=history.frame,
            full_feature_names=full_feature_names,
            on_demand=OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry),
            metadata=metadata,
            repo_path=config.repo_path,
        )

    @staticmethod
    def pull_latest_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None,
        start_date: dt.datetime,
        end_date: dt.datetime,
    ) -> RetrievalJob:
        """What ``materialize`` writes: for each entity of which a row became usable in [start, end], its newest row by ``end``.

        Feast's stores go by event time, so late rows never reach the online store (feast-dev/feast#4133).
        """
        view = _pulled(data_source, join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)

        def table() -> pa.Table:
            newest = _engine().latest(config.repo_path, view, _aware(start_date), _aware(end_date))
            return _with_dummy_entity(newest, join_key_columns)

        return AsOfJob(table)

    @staticmethod
    def pull_all_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None = None,
        start_date: dt.datetime | None = None,
        end_date: dt.datetime | None = None,
    ) -> RetrievalJob:
        """Every row with an event in [start, end] that was available by ``end``; no feature columns means all columns."""
        view = _pulled(data_source, join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        start, end = (None if instant is None else _aware(instant) for instant in (start_date, end_date))
        return AsOfJob(lambda: _engine().everything(config.repo_path, view, start, end))

    def validate_data_source(self, config: RepoConfig, data_source: DataSource) -> None:
        """Artifacts may be registered before anything has been published, and their path is a pattern."""
        if ARTIFACTS_TAG not in data_source.tags:
            super().validate_data_source(config, data_source)


def _engine() -> ModuleType:
    from feature_repo import history  # noqa: PLC0415  it loads pyspark, which those who only read online must not pay for

    return history


def _wanted(
    feature_views: list[FeatureView], feature_refs: list[str], project: str, registry: BaseRegistry, *, full_names: bool
) -> list[Any]:
    on_demand = _get_requested_on_demand_feature_views(feature_refs, project, registry)
    grouped, _ = _get_requested_feature_views_to_features_dict(feature_refs, feature_views, on_demand)
    return [_of_view(view, list(dict.fromkeys(features)), full_names=full_names) for view, features in grouped.items()]


def _of_view(view: FeatureView, features: list[str], *, full_names: bool) -> Any:
    source, name = view.batch_source, view.projection.name_to_use()
    if source is None or getattr(view, "feature_transformation", None) is not None:
        raise DataFault([
            f"feature view '{view.name}': has {'no batch source' if source is None else 'a transformation'}; this store joins "
            "rows that are stored, build them first"
        ])
    stored = {mapped: column for column, mapped in source.field_mapping.items()}
    renamed = view.projection.join_key_map
    return _engine().Wanted(
        view=name,
        source=source,
        keys={
            renamed.get(entity.name, entity.name): stored.get(entity.name, entity.name)
            for entity in view.entity_columns
            if entity.name != DUMMY_ENTITY_ID
        },
        features={
            f"{name}__{feature}" if full_names else feature: stored.get(feature, feature) for feature in features
        },
        event=stored.get(source.timestamp_field, source.timestamp_field),
        available=stored.get(source.created_timestamp_column, source.created_timestamp_column) or None,
        ttl=view.ttl or None,
        delay=dt.timedelta(seconds=float(view.tags.get(DELAY_TAG, 0))),
        declared=tuple(stored.get(feature.name, feature.name) for feature in view.features),
    )


def _pulled(source: DataSource, keys: list[str], features: list[str], event: str, available: str | None) -> Any:
    return _engine().Wanted(
        view=source.name,
        source=source,
        keys={key: key for key in keys if key != DUMMY_ENTITY_ID},
        features={feature: feature for feature in features},
        event=event,
        available=available or None,
        ttl=None,
    )


def _with_dummy_entity(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Feast's stand-in for the key of a view without entities."""
    if keys:
        return rows
    return rows.append_column(DUMMY_ENTITY_ID, pa.array([DUMMY_ENTITY_VAL] * rows.num_rows))


def _aware(instant: dt.datetime) -> dt.datetime:
    """Feast hands zoneless instants over in UTC."""
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.UTC)
