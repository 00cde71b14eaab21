"""The server's memory of DPoP: nonces it gave out, and proofs it has seen (RFC 9449, sections 8 and 11.1).

Layer: default. In memory only. After a restart a proof that was made before it needs a nonce of this
start, so that nothing seen by the last one can be sent again.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from datetime import datetime, timedelta

from .clock import Clock
from .dpop import MAX_PROOF_AGE, MAX_PROOF_LEAD, Proof

NONCE_SECONDS = 300.0
"""How long a nonce is given out; it is taken for as long again."""

_NONCE_BYTES = 16


class Nonces:
    """Nonces and seen proofs of one start of the server.

    Args:
        clock: Time and chance.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now().replace(microsecond=0)
        self._seen: OrderedDict[bytes, datetime] = OrderedDict()
        self._previous: str | None = None
        self._current = self._make()
        self._made = clock.monotonic()

    @property
    def current(self) -> str:
        """The nonce that is given out now."""
        if self._clock.monotonic() - self._made > NONCE_SECONDS:
            self.renew()
        return self._current

    def renew(self) -> None:
        """Give out another nonce; the one before is still taken."""
        self._previous, self._current = self._current, self._make()
        self._made = self._clock.monotonic()

    def satisfied(self, proof: Proof, *, required: bool) -> bool:
        """Whether a proof carries a nonce where it needs one."""
        if not required and proof.issued_at >= self._started:
            return True
        return proof.nonce is not None and proof.nonce in (self.current, self._previous)

    def first_use(self, proof: Proof) -> bool:
        """Note a proof; False when it was used before."""
        now = self._clock.now()
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        mark = hashlib.sha256(f"{proof.jkt}:{proof.jti}".encode("utf-8", "surrogatepass")).digest()
        if mark in self._seen:
            return False
        self._seen[mark] = now + MAX_PROOF_AGE + MAX_PROOF_LEAD + timedelta(seconds=1)
        return True

    def _make(self) -> str:
        return base64.urlsafe_b64encode(self._clock.random_bytes(_NONCE_BYTES)).rstrip(b"=").decode()
