"""Airflow notifiers: to the task's log, to a webhook, by mail; which of them, the settings say.

A message is claimed in the ledger before it is sent, so nobody gets it twice; one that could not be sent is in the ledger
too. No notifier fails a run, and none shows a URL or a password.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import BaseNotifier, Context

from artifacts.secret import SecretRef
from operators import live
from operators.ledger import DECISION, ledger
from operators.notices import NOTICE, NOTICE_FAILED, Message, changes, overdue
from operators.pipelines import PIPELINES, Pipeline
from operators.plans.watch import DRIFT
from operators.schedules import next_tick
from operators.settings import Platform, platform

WEBHOOK_SECONDS = 10.0


class NotTold(RuntimeError):
    """A message could not be sent; the text says why and holds no secret."""


class LogNotifier(BaseNotifier):
    """Writes a message into the task's log."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message

    def notify(self, context: Context) -> None:
        """Writes it."""
        self.log.warning("%s", self.message.text())


class WebhookNotifier(BaseNotifier):
    """Posts a message as JSON to the URL that a file holds; such URLs are often secrets themselves."""

    def __init__(self, message: Message, url: SecretRef, transport: httpx.BaseTransport | None = None) -> None:
        super().__init__()
        self.message, self.url, self.transport = message, url, transport

    def notify(self, context: Context) -> None:
        """Posts it; raises NotTold."""
        body = {"subject": self.message.subject, "text": self.message.text(), **self.message.facts}
        try:
            with httpx.Client(timeout=WEBHOOK_SECONDS, transport=self.transport) as client:
                answer = client.post(self.url.value("notify webhook"), json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotTold(f"the webhook of {self.url} does not answer ({type(error).__name__})") from None
        if not answer.is_success:
            raise NotTold(f"the webhook of {self.url} answered HTTP {answer.status_code}")


class MailNotifier(SmtpNotifier):
    """Sends a message by mail, through an Airflow connection."""

    # Words from outside must not be rendered as templates.
    template_fields = ()  # type: ignore[assignment]

    def __init__(self, message: Message, to: Sequence[str], connection: str) -> None:
        super().__init__(to=list(to), subject=message.subject, html_content=message.html(), smtp_conn_id=connection)

    def notify(self, context: Context) -> None:
        """Sends it; raises NotTold."""
        try:
            super().notify(context)
        except Exception as error:  # noqa: BLE001  whatever it was, only its name is safe to show
            raise NotTold(f"connection '{self.smtp_conn_id}' took no mail ({type(error).__name__})") from None


def chosen(message: Message, settings: Platform) -> dict[str, BaseNotifier]:
    """The notifiers of a message, by the names in ``PERENNIAL_NOTIFY``."""
    found: dict[str, BaseNotifier] = {}
    for name in settings.notify:
        if name == "log":
            found[name] = LogNotifier(message)
        elif name == "webhook":
            found[name] = WebhookNotifier(message, SecretRef(file=settings.notify_webhook_file))
        else:
            found[name] = MailNotifier(message, settings.notify_emails, settings.notify_smtp)
    return found


class StateChanges(BaseNotifier):
    """Tells every change of one model's drift state that nobody was told of yet."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model

    def notify(self, context: Context) -> None:
        """Tells them, oldest first."""
        book = ledger()
        page = f"{platform().airflow}/perennial/timeline/{self.model}"
        checks, told = book.entries(DRIFT, self.model), book.entries(NOTICE, self.model)
        tell(changes(checks, told, live.now(), page), context)


class Overdue(BaseNotifier):
    """Tells that a retrain is overdue: a scheduler or an asset that starts nothing at all would be silent otherwise."""

    def notify(self, context: Context) -> None:
        """Tells it once for each decision that none has followed."""
        found = (late(row) for row in PIPELINES)
        tell([message for message in found if message is not None], context)


def late(row: Pipeline) -> Message | None:
    """What is overdue of a model; None where cron is off or the clock is a replay's."""
    decisions = ledger().entries(DECISION, row.model, newest=1)
    tick = next_tick(row.schedule, decisions[-1].at) if decisions else None
    return overdue(row.model, decisions, tick, live.now())


def tell(messages: Sequence[Message], context: Context) -> int:
    """Sends each message that nobody has claimed; returns how many. Never raises for a notifier that fails."""
    sent = 0
    for message in messages:
        body = {"subject": message.subject, "facts": message.facts, "by": list(platform().notify)}
        if ledger().append(NOTICE, message.model, body, unique=message.name).existed:
            continue
        sent += 1
        for name, notifier in chosen(message, platform()).items():
            try:
                notifier(context)
            except Exception as error:  # noqa: BLE001  a message is never worth a run
                why = str(error) if isinstance(error, NotTold) else type(error).__name__
                ledger().append(NOTICE_FAILED, message.model, {"name": message.name, "by": name, "why": why})
    return sent
