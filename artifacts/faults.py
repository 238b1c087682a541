"""What can go wrong between a process and a store, one class per thing that somebody can do about it.

``StoreRefused`` and what is under it need a person: a retry cannot help. ``StoreAway`` and ``CacheFull`` are the
infrastructure's, and a retry may help. No message ever holds a secret, only the name of the reference to it.
"""

from __future__ import annotations


class StoreRefused(ValueError):
    """The settings of a store are at fault, or what it is asked for; a retry cannot help."""


class BadAddress(StoreRefused):
    """The URI cannot name anything there, such as one that ends in a slash; write it right."""


class BucketMissing(StoreRefused):
    """There is no such bucket; make it, or name the right one."""


class CredentialsRefused(StoreRefused):
    """The store does not know these credentials, they may not do this, or there are none."""


class ReadOnlyStore(StoreRefused):
    """Something was to be written to a store that is declared read-only."""


class StoreAway(ConnectionError):
    """The store does not answer, or not in time; it may next time."""


class CredentialsExpired(StoreAway):
    """The session token has run out; whoever makes it makes the next one."""


class ClockSkewed(StoreAway):
    """This machine's clock and the store's differ too much; mend the clock, or run elsewhere."""


class CacheFull(RuntimeError):
    """The cache has no room for what has to be read, and all that it holds is in use."""
