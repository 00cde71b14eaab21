"""What a browser may do with the embedded server: the page, its headers, and who may ask from where.

Layer: default. A request of the people's side is refused unless its `Host` is one of the server's own
names (a foreign name that resolves to this machine is a rebinding attack) and, where a browser says
so, unless it comes from the server's own page. The page is one file whose script and style are the
only ones that its policy lets run; nothing that a person or an agent wrote is ever part of it. Not
here: who a person is and what they may see (`local_people`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .local_http import Request, Response
from .local_rules import Refused
from .wire_words import ProblemCode

PAGE_FILE = Path(__file__).with_name("local_page.html")

SAFE_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""On every answer: no guessing of types, no address sent on, no copy kept, and should an answer of the
API be opened as a document, it can do nothing. The page replaces the policy by its own."""

FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""Values of `Sec-Fetch-Site` that name another page as the sender; another port is `same-site`."""


def check_sender(request: Request, origins: frozenset[str]) -> None:
    """Refuse what a foreign page or a foreign name sent; nothing but headers is looked at.

    Args:
        request: The request.
        origins: Those under which this server is reached (`http://127.0.0.1:8080`), in lower case.

    Raises:
        Refused: 403 `forbidden`.
    """
    hosts = {origin.partition("://")[2] for origin in origins}
    if request.headers.get("host", "").lower() not in hosts:
        raise Refused(403, ProblemCode.FORBIDDEN, "this server is not reached under that name")
    origin = request.headers.get("origin")
    opens_page = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    foreign = request.headers.get("sec-fetch-site") in FOREIGN_SITES and not opens_page
    if foreign or (origin is not None and origin.lower() not in origins):
        raise Refused(403, ProblemCode.FORBIDDEN, "another page may not use this server")


@dataclass(frozen=True, slots=True)
class Page:
    """The page as it is sent.

    Attributes:
        body: The file.
        policy: The content security policy: the file's own script and style run, by their hashes, and
            the script may talk to this server. Nothing else is ever loaded, run or framed.
    """

    body: bytes = field(repr=False)
    policy: str

    @classmethod
    def load(cls, path: Path = PAGE_FILE) -> Page:
        """Read the file and compute its policy."""
        text = path.read_text("utf-8")
        policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {_hashes(text, 'script')}",
                f"style-src {_hashes(text, 'style')}",
                "img-src data:",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            )
        )
        return cls(text.encode(), policy)

    def response(self) -> Response:
        """The page with its headers."""
        headers = {
            **SAFE_HEADERS,
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": self.policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        return Response(200, self.body, headers)


def _hashes(text: str, tag: str) -> str:
    blocks = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
