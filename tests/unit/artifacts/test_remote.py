"""What a client's error means: a person's to mend, or passing."""

from __future__ import annotations

import ssl

import pytest
from botocore.exceptions import SSLError

from artifacts.faults import StoreAway, StoreRefused
from artifacts.remote import Place, fault_of

PLACE = Place("s3://bucket/a", None, None, "bucket/a")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ConnectionResetError(104, "reset during the handshake"), StoreAway),
        (ssl.SSLCertVerificationError("self-signed certificate"), StoreRefused),
    ],
)
def test_only_a_certificate_that_is_not_trusted_is_a_persons_to_mend(cause: Exception, kind: type[Exception]) -> None:
    found = fault_of(SSLError(endpoint_url="https://store", error=cause), PLACE)
    assert type(found) is kind
