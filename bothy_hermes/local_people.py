"""The people's side of the embedded server: the page, and what people and owners read and do.

Layer: default. This room says which call exists, what it takes and gives, and who may make it at all;
every rule of the conversation itself (who may answer a card, what becomes a run) is the instance's.
Base path `/people/v1`, `Authorization: Bearer <login token>`, JSON in UTF-8, problems as in the agent
protocol. Bodies and answers are the types of `local_people_wire`; docs/people-api.md shows them.

    GET  /me                             MeView
    GET  /channels                       ChannelList
    GET  /threads                        ThreadList
    POST /threads                        NewThread -> 201 PeopleThread
    GET  /threads/{id}?before=MESSAGE    ThreadPage, the newest messages, or those before one
    POST /threads/{id}/messages          NewMessage -> 201 PostedMessage (repeated: the same)
    POST /messages/{id}/interactions     UseComponent -> 201 PeopleInteraction
    POST /runs/{id}/cancel               Nothing -> RunView
    GET  /events?since=POSITION          server-sent events: thread, message, run, interaction, agent, reset

    for owners, below /admin:
    GET  /                               AdminView
    POST /people                         NewPerson -> 201 LoginView
    PUT  /people/{id}                    ChangePerson -> PersonView
    GET  /people/{id}/login              LoginView
    PUT  /allow-list                     SetAllowList -> AdminView
    POST /channels                       NewChannel -> 201 AdminChannel
    PUT  /channels/{id}                  SetChannel -> AdminChannel
    PUT  /threads/{id}/title             SetTitle -> PeopleThread
    POST /threads/{id}/files?name=&scan_status=   the file's bytes -> 201 Attachment
    POST /keys/rotate                    Nothing -> 204
    PUT  /nonces                         SetNonces -> AdminView
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from .codec import parse, wire_type
from .errors import WireError
from .local_changes import Change
from .local_feed import READER_LIMIT, Feed
from .local_http import Request, Response, json_response, problem
from .local_instance import Instance
from .local_people_views import Views
from .local_people_wire import (
    ChangePerson,
    FileName,
    LoginView,
    MediaType,
    NewChannel,
    NewMessage,
    NewPerson,
    NewThread,
    Nothing,
    PostedMessage,
    SetAllowList,
    SetChannel,
    SetNonces,
    SetTitle,
    UseComponent,
)
from .local_records import Person, Role
from .local_rules import Refused
from .local_web import SAFE_HEADERS, Page, check_sender
from .wire_words import ProblemCode, ScanStatus

BASE = "/people/v1"

NO_ID = UUID(int=0)
"""Stands for the thing of a call that names none."""

EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
"""The second is for a proxy, which would else collect events before it passes them on."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call on its way: who makes it, on which thing (the ID in the path), with what."""

    person: Person
    id: UUID
    body: Any
    request: Request


@dataclass(frozen=True, slots=True)
class Route:
    """One call of the people's side.

    Attributes:
        method: The HTTP method.
        path: Below the base; `{id}` is a UUID.
        run: What does it; returns the answer's value, or a whole response.
        body: The body's type, None where there is none or where it is no JSON.
        status: The status of success.
    """

    method: str
    path: str
    run: Callable[[PeopleSide, Call], Any]
    body: type[Any] | None = None
    status: int = 200

    def match(self, method: str, path: str) -> UUID | None:
        """The ID in a path when it is this route's (`NO_ID` for a path without one), else None."""
        before, named, after = self.path.partition("{id}")
        if method != self.method or not path.startswith(before) or not path.endswith(after):
            return None
        word = path[len(before) : len(path) - len(after)]
        if not named:
            return None if word else NO_ID
        return _uuid(word)


@wire_type()
class _Upload:
    name: FileName
    scan_status: ScanStatus
    media_type: MediaType


class PeopleSide:
    """Answers everything that people ask of one instance.

    Args:
        instance: Does what people want, or refuses it.
        origins: Returns those under which the server is reached now, in lower case.
        page: The page; read from the package by default.
    """

    def __init__(
        self, instance: Instance, origins: Callable[[], frozenset[str]], *, page: Page | None = None
    ) -> None:
        self.instance = instance
        self.views = Views(instance)
        self.feed = Feed(instance.changes, self._describe, self.views.agent)
        self._origins = origins
        self._page = page or Page.load()

    def answer(self, request: Request) -> Response:
        """Answer a request; what is refused is answered as a problem."""
        try:
            check_sender(request, self._origins())
            if request.method in ("GET", "HEAD") and request.path == "/":
                return self._page.response()
            return self._answer_call(request)
        except Refused as refused:
            wanted = {"WWW-Authenticate": "Bearer"} if refused.code is ProblemCode.UNAUTHORIZED else {}
            return _safe(problem(refused, headers=wanted))
        except WireError as error:
            return _safe(problem(Refused(422, ProblemCode.VALIDATION_FAILED, str(error))))

    def _answer_call(self, request: Request) -> Response:
        if request.oversize:
            raise Refused(413, ProblemCode.CONTENT_TOO_LONG, "the body is too long")
        person = self._person(request)
        path = request.path.removeprefix(BASE) if request.path.startswith(f"{BASE}/") else ""
        if f"{path}/".startswith("/admin/") and person.role is not Role.OWNER:
            raise Refused(403, ProblemCode.FORBIDDEN, "only an owner may do that")
        for route in ROUTES:
            thing = route.match(request.method, path)
            if thing is not None:
                body = parse(route.body, request.json()) if route.body is not None else None
                found = route.run(self, Call(person, thing, body, request))
                return _safe(found if isinstance(found, Response) else json_response(route.status, found))
        others = sorted(route.method for route in ROUTES if route.match(route.method, path) is not None)
        if others:
            refused = Refused(405, ProblemCode.NOT_FOUND, "another method")
            return _safe(problem(refused, headers={"Allow": ", ".join(others)}))
        raise Refused(404, ProblemCode.NOT_FOUND, "there is no such call")

    def _person(self, request: Request) -> Person:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        person = self.instance.person_of_token(token) if scheme.lower() == "bearer" else None
        if person is None:
            raise Refused(401, ProblemCode.UNAUTHORIZED, "a valid login token is needed")
        return person

    def _describe(self, change: Change) -> tuple[str, Any] | None:
        try:
            return change.kind, self.views.changed(change)
        except Refused:  # gone by the time that it is told
            return None


# What a call does ---------------------------------------------------------------------------------


def _me(side: PeopleSide, call: Call) -> Any:
    return side.views.me(call.person)


def _channels(side: PeopleSide, _call: Call) -> Any:
    return side.views.channels()


def _threads(side: PeopleSide, _call: Call) -> Any:
    return side.views.threads()


def _thread(side: PeopleSide, call: Call) -> Any:
    before = call.request.query.get("before")
    if before is not None and _uuid(before) is None:
        raise Refused(422, ProblemCode.VALIDATION_FAILED, "before: expected the ID of a message")
    return side.views.page(call.id, None if before is None else _uuid(before))


def _new_thread(side: PeopleSide, call: Call) -> Any:
    body: NewThread = call.body
    made = side.instance.create_thread(call.person.id, body.channel_id, body.title)
    return side.views.thread(made)


def _post(side: PeopleSide, call: Call) -> Any:
    body: NewMessage = call.body
    posted = side.instance.post_message(
        call.person.id,
        call.id,
        body.content,
        client_msg_id=body.client_msg_id,
        session_mode=body.session_mode,
        bind_ref=body.bind_ref,
        file_ids=body.attachments or (),
    )
    return PostedMessage(
        message=side.views.message(posted.message), run_id=posted.run_id, followup_of=posted.followup_of
    )


def _use(side: PeopleSide, call: Call) -> Any:
    body: UseComponent = call.body
    used = side.instance.use_component(call.person.id, call.id, body.component_id, body.values)
    return side.views.interaction(used)


def _cancel(side: PeopleSide, call: Call) -> Any:
    return side.instance.cancel_run(call.person.id, call.id)


def _events(side: PeopleSide, call: Call) -> Response:
    since = call.request.query.get("since", "")
    if not since.isascii() or not since.isdigit() or len(since) > 18:  # noqa: PLR2004  # fits 64 bits
        raise Refused(422, ProblemCode.VALIDATION_FAILED, "since: expected a position")
    if side.feed.readers >= READER_LIMIT:
        raise Refused(429, ProblemCode.RATE_LIMITED, "too many readers of events at once")
    return Response(200, headers=EVENT_STREAM, stream=side.feed.read(int(since)))


def _admin(side: PeopleSide, _call: Call) -> Any:
    return side.views.admin()


def _add_person(side: PeopleSide, call: Call) -> Any:
    body: NewPerson = call.body
    made = side.instance.add_person(body.name, body.role, approve_actions=body.approve_actions, run_kinds=())
    return LoginView(person=side.views.person(made), token=made.token.reveal())


def _change_person(side: PeopleSide, call: Call) -> Any:
    body: ChangePerson = call.body
    if call.id == call.person.id and body.role is not Role.OWNER:
        raise Refused(409, ProblemCode.FORBIDDEN, "an owner does not take the role from themselves")
    changed = side.instance.change_person(call.id, role=body.role, approve_actions=body.approve_actions)
    return side.views.person(changed)


def _login(side: PeopleSide, call: Call) -> Any:
    person = side.instance.person(call.id)
    return LoginView(person=side.views.person(person), token=person.token.reveal())


def _allow_list(side: PeopleSide, call: Call) -> Any:
    body: SetAllowList = call.body
    wanted = {side.instance.person(entry.principal_id).id: set(entry.run_kinds) for entry in body.entries}
    before = {entry.principal_id: set(entry.run_kinds) for entry in side.instance.agent.allow}
    for person in side.instance.people():
        kinds = wanted.get(person.id, set())
        if kinds != before.get(person.id, set()):
            side.instance.set_allowed(person.id, sorted(kinds))
    return side.views.admin()


def _add_channel(side: PeopleSide, call: Call) -> Any:
    body: NewChannel = call.body
    return side.views.admin_channel(side.instance.add_channel(body.name, served=body.served))


def _set_channel(side: PeopleSide, call: Call) -> Any:
    body: SetChannel = call.body
    skills = tuple((skill.name, skill.text) for skill in body.skills)
    return side.views.admin_channel(side.instance.set_channel_config(call.id, body.prompt, skills))


def _set_title(side: PeopleSide, call: Call) -> Any:
    return side.views.thread(side.instance.set_title(call.person.id, call.id, call.body.title))


def _upload(side: PeopleSide, call: Call) -> Any:
    sent = {"scan_status": "clean", **call.request.query}
    sent["media_type"] = call.request.headers.get("content-type", "application/octet-stream")
    upload = parse(_Upload, sent)
    return side.instance.add_file(
        call.person.id, call.id, upload.name, upload.media_type, call.request.body, upload.scan_status
    )


def _rotate_keys(side: PeopleSide, _call: Call) -> Response:
    side.instance.rotate_signing_key()
    return Response(204)


def _nonces(side: PeopleSide, call: Call) -> Any:
    side.instance.require_nonces(call.body.required)
    return side.views.admin()


ROUTES: tuple[Route, ...] = (
    Route("GET", "/me", _me),
    Route("GET", "/channels", _channels),
    Route("GET", "/threads", _threads),
    Route("POST", "/threads", _new_thread, NewThread, 201),
    Route("GET", "/threads/{id}", _thread),
    Route("POST", "/threads/{id}/messages", _post, NewMessage, 201),
    Route("POST", "/messages/{id}/interactions", _use, UseComponent, 201),
    Route("POST", "/runs/{id}/cancel", _cancel, Nothing),
    Route("GET", "/events", _events),
    Route("GET", "/admin", _admin),
    Route("POST", "/admin/people", _add_person, NewPerson, 201),
    Route("PUT", "/admin/people/{id}", _change_person, ChangePerson),
    Route("GET", "/admin/people/{id}/login", _login),
    Route("PUT", "/admin/allow-list", _allow_list, SetAllowList),
    Route("POST", "/admin/channels", _add_channel, NewChannel, 201),
    Route("PUT", "/admin/channels/{id}", _set_channel, SetChannel),
    Route("PUT", "/admin/threads/{id}/title", _set_title, SetTitle),
    Route("POST", "/admin/threads/{id}/files", _upload, None, 201),
    Route("POST", "/admin/keys/rotate", _rotate_keys, Nothing, 204),
    Route("PUT", "/admin/nonces", _nonces, SetNonces),
)
"""Every call of the people's side, below `/people/v1`."""


def _safe(response: Response) -> Response:
    return dataclasses.replace(response, headers={**SAFE_HEADERS, **response.headers})


def _uuid(text: str) -> UUID | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None
