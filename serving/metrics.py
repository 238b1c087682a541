"""What a gateway counts, as Prometheus text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Metrics:
    """The counters of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "perennial_requests", "Inference requests by outcome", ("model", "status"), registry=self.registry
        )
        self.rows = Counter("perennial_rows", "Answered rows by version", ("model", "version"), registry=self.registry)
        self.missing = Counter(
            "perennial_missing_view_rows",
            "Rows whose view had nothing usable, by why: absent, expired, ahead or unavailable",
            ("model", "view", "status"),
            registry=self.registry,
        )
        self.online_failures = Counter(
            "perennial_online_failures",
            "Reads that the online store did not answer; their rows were imputed",
            ("model",),
            registry=self.registry,
        )
        self.feedback = Counter("perennial_feedback", "Labels taken", ("model",), registry=self.registry)
        self.refused_rows = Counter(
            "perennial_refused_rows",
            "Rows refused because their model does not impute what is missing",
            ("model",),
            registry=self.registry,
        )
        self.in_flight = Gauge("perennial_in_flight", "Inference requests being answered", registry=self.registry)
        self.log_bytes = Gauge(
            "perennial_log_bytes", "Bytes that the log's segments hold on this machine", registry=self.registry
        )
        self.log_alarm = Gauge(
            "perennial_log_alarm", "1 while the log or its disk is nearly full", registry=self.registry
        )
        self.routing = Gauge(
            "perennial_routing_version", "Version of the routing record followed", ("model",), registry=self.registry
        )
        self.routing_fault = Gauge(
            "perennial_routing_fault",
            "1 while the newest routing record is not followed, 0 otherwise",
            ("model",),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "perennial_request_seconds", "Time to answer", ("model",), buckets=LATENCY_BUCKETS, registry=self.registry
        )
