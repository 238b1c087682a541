"""The gateway's own log: one JSON object a line, with nothing in it that a caller sent but harmless request ids."""

from __future__ import annotations

import datetime as dt
import json
import logging
import traceback


class JsonLines(logging.Formatter):
    """Time, level, logger and message, and what ``extra={"said": {...}}`` adds. An error is its type and its places.

    The text of an unforeseen error may quote a caller's values, so it is left out.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line: dict[str, object] = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage() if not record.exc_info else str(record.msg).splitlines()[0],
            **getattr(record, "said", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            places = traceback.extract_tb(record.exc_info[2])
            line["error"] = record.exc_info[0].__name__
            line["places"] = [f"{place.filename}:{place.lineno} {place.name}" for place in places]
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Sends everything from INFO on to standard error as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
