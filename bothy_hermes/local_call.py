"""One call of the adapter as a value: who asks, for what, with which body.

Layer: default. Read from bytes by `local_agents`, carried out by `local_calls` with the handlers of
`local_reads` and `local_writes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from .local_auth import Caller, serves
from .local_core import Core
from .local_http import Request
from .local_records import RunRecord
from .local_rules import Refused, forbidden, invalid
from .wire_operations import Operation
from .wire_words import ProblemCode

_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,100}")
_VERSION_TAG = re.compile(r'"(0|[1-9][0-9]{0,15})"')


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read.

    Attributes:
        operation: What it asks for.
        caller: Who asks.
        ids: The IDs in its path, in order.
        body: Its body as a wire value, None without one.
        request: The request itself, for query and headers.
    """

    operation: Operation
    caller: Caller
    ids: Mapping[str, UUID]
    body: Any
    request: Request

    @property
    def version(self) -> int:
        """The version that `If-Match` names.

        Raises:
            Refused: 428 without one, 422 for anything else.
        """
        text = self.request.headers.get("if-match")
        if text is None:
            raise Refused(428, ProblemCode.PRECONDITION_REQUIRED, "If-Match is missing", violation=True)
        found = _VERSION_TAG.fullmatch(text)
        if found is None:
            raise invalid("If-Match is no quoted version")
        return int(found[1])

    @property
    def consumer(self) -> str:
        """The consumer that the query names.

        Raises:
            Refused: 422, missing or malformed.
        """
        return consumer_of(self.request)


def consumer_of(request: Request) -> str:
    """Return the consumer that a request names.

    Raises:
        Refused: 422, missing or malformed.
    """
    name = request.query.get("consumer", "")
    if not _CONSUMER.fullmatch(name):
        raise invalid("no consumer, or a malformed one")
    return name


def run_of(core: Core, call: Call) -> RunRecord:
    """Find the run that a call is about and hold the token to it.

    Raises:
        Refused: 403 for a token of something else, 404 for no such run.
    """
    ids, caller = call.ids, call.caller
    if "run_id" in ids:
        if not serves(caller, run_id=ids["run_id"]):
            raise forbidden("the token is of another run")
        return core.run(ids["run_id"])
    assert caller.claims is not None, "operations without a run in their path take run tokens only"
    for name in ("thread_id", "channel_id"):
        if name in ids and not serves(caller, **{name: ids[name]}):
            raise forbidden("the token is of another thread or channel")
    return core.run(caller.claims.run_id)
