"""Who may ask the people's side from where, and what the page may do."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from bothy_hermes.local_http import Request
from bothy_hermes.local_rules import Refused
from bothy_hermes.local_web import PAGE_FILE, SAFE_HEADERS, Page, check_sender

ORIGINS = frozenset({"http://127.0.0.1:8080", "http://localhost:8080", "https://bothy.example"})


def request(method="GET", path="/people/v1/me", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method=method, path=path, headers={"host": "127.0.0.1:8080", **named})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "LOCALHOST:8080"},
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "http://localhost:8080", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
        {"host": "bothy.example", "origin": "https://bothy.example", "sec_fetch_site": "same-origin"},
    ],
)
def test_the_servers_own_page_and_programs_may_ask(headers):
    check_sender(request("POST", **headers), ORIGINS)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "bothy.attacker.example:8080"},
        {"host": "127.0.0.1:8081"},
        {"host": "127.0.0.1"},
        {"host": ""},
        {"origin": "http://attacker.example"},
        {"origin": "https://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:8081"},
        {"host": "bothy.example", "origin": "http://bothy.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_foreign_names_and_foreign_pages_are_refused(headers):
    with pytest.raises(Refused) as caught:
        check_sender(request("POST", **headers), ORIGINS)
    assert (caught.value.status, caught.value.code) == (403, "forbidden")


def test_a_link_on_another_page_may_open_the_page():
    check_sender(request(path="/", sec_fetch_site="cross-site", sec_fetch_mode="navigate"), ORIGINS)


def test_a_foreign_page_that_navigates_may_not_post():
    with pytest.raises(Refused):
        check_sender(request("POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate"), ORIGINS)


def test_a_request_without_a_host_is_refused():
    with pytest.raises(Refused):
        check_sender(Request(method="GET", path="/"), ORIGINS)


def policy():
    parts = (part.split(" ", 1) for part in Page.load().policy.split("; "))
    return dict(parts)


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else():
    """The hashes are computed here from the text between the tags, as a browser does."""
    text = PAGE_FILE.read_text("utf-8")

    def digest(tag):
        (block,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'"

    assert policy() == {
        "default-src": "'none'",
        "script-src": digest("script"),
        "style-src": digest("style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_every_answer_is_sealed_and_the_page_is_no_frame():
    headers = Page.load().response().headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Content-Security-Policy"] == Page.load().policy
    assert SAFE_HEADERS["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize(
    "call",
    [
        r"innerHTML",
        r"outerHTML",
        r"insertAdjacentHTML",
        r"document\.write",
        r"\beval\(",
        r"new Function",
        r"DOMParser",
        r"createContextualFragment",
        r"setHTML",
        r"srcdoc",
        r"localStorage",
        r"document\.cookie",
        r"\son\w+=",
        r"\sstyle=",
    ],
)
def test_the_page_has_no_way_to_read_text_as_html(call):
    assert not re.search(call, PAGE_FILE.read_text("utf-8"))


class Tags(HTMLParser):
    """What the page refers to, and its controls without a name."""

    def __init__(self):
        super().__init__()
        self.references = []
        self.tags = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.references += [
            value for name, value in attributes if name in ("href", "src", "action", "srcset", "data")
        ]


def test_the_page_loads_nothing_from_anywhere():
    """The icon is a data URL in the page itself; the names in the script are no resources."""
    tags = Tags()
    tags.feed(PAGE_FILE.read_text("utf-8"))
    assert [one for one in tags.references if not one.startswith("data:image/svg+xml,")] == []
    assert "http://" not in re.sub(r"http://www\.w3\.org/2000/svg", "", PAGE_FILE.read_text("utf-8"))


def test_ids_are_unique_and_labels_point_to_something():
    tags = Tags()
    tags.feed(PAGE_FILE.read_text("utf-8").split("<script>")[0])
    ids = [attributes["id"] for _, attributes in tags.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    pointed = " ".join(
        attributes.get(name) or ""
        for _, attributes in tags.tags
        for name in ("for", "aria-describedby", "aria-controls")
    ).split()
    assert set(pointed) <= set(ids)
