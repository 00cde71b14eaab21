"""The adapter's reads and its agent-wide calls, one handler each.

Layer: default. Nothing here knows repetitions or minds the end of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .defaults import ADAPTER_NAME, RUNTIME_NAME
from .local_call import Call, run_of
from .local_context import context_of
from .local_http import Response, json_response
from .local_instance import Instance
from .local_records import AgentRecord
from .local_rules import invalid, not_found
from .local_tokens import published_keys
from .wire import AllowList, Attachment, Me
from .wire_words import PROTOCOL_VERSION, PrincipalKind, RunState


def agent_of(instance: Instance, call: Call) -> AgentRecord:
    """Return the agent that a path names.

    Raises:
        Refused: 404.
    """
    if call.ids["agent_id"] != instance.agent.id:
        raise not_found("no such agent")
    return instance.agent


def file_of(instance: Instance, call: Call) -> Attachment:
    """Return the file that a call may read.

    Raises:
        Refused: 403 or 404.
    """
    with instance.state.lock:
        return instance.threads_side.file_of(run_of(instance.core, call), call.ids["file_id"])


def _get_me(instance: Instance, _call: Call) -> Response:
    agent, record = instance.agent, instance.state.instance
    return json_response(
        200,
        Me(
            id=agent.id,
            kind=PrincipalKind.AGENT,
            display_name=agent.name,
            owner_id=agent.owner_id,
            instance_id=record.id,
            dpop_jkt=agent.dpop_jkt,
            settings_version=record.settings_version,
        ),
    )


def _get_jwks(instance: Instance, _call: Call) -> Response:
    return json_response(200, published_keys(instance.state.keys.all()))


def _get_allow_list(instance: Instance, call: Call) -> Response:
    agent = agent_of(instance, call)
    headers = {"ETag": f'"{agent.allow_version}"'}
    if call.request.headers.get("if-none-match") == headers["ETag"]:
        return Response(304, headers=headers)
    return json_response(200, AllowList(version=agent.allow_version, entries=agent.allow), headers)


def _put_heartbeat(instance: Instance, call: Call) -> Response:
    agent_of(instance, call)
    details = call.body.details
    if details.protocol_version != PROTOCOL_VERSION:
        raise invalid("the heartbeat names another protocol")
    if (details.adapter.name, details.runtime.name) != (ADAPTER_NAME, RUNTIME_NAME):
        raise invalid("the heartbeat names another adapter or runtime")
    instance.presence.heartbeat(call.consumer, call.body)
    return Response(204)


def _list_runs(instance: Instance, call: Call) -> Response:
    agent_of(instance, call)
    words = {word for word in call.request.query.get("state", "").split(",") if word}
    if not words <= set(RunState):
        raise invalid("an unknown state")
    consumer = call.consumer if "consumer" in call.request.query else None
    return json_response(200, instance.payloads.list_runs({RunState(word) for word in words}, consumer))


def _get_run(instance: Instance, call: Call) -> Response:
    return json_response(200, instance.core.view(run_of(instance.core, call)))


def _get_run_context(instance: Instance, call: Call) -> Response:
    return json_response(200, context_of(instance.core, run_of(instance.core, call)))


def _get_served_channel_config(instance: Instance, call: Call) -> Response:
    return json_response(200, instance.threads_side.served_config(run_of(instance.core, call)))


READS: Mapping[str, Callable[[Instance, Call], Response]] = {
    "getMe": _get_me,
    "getJwks": _get_jwks,
    "getAllowList": _get_allow_list,
    "putHeartbeat": _put_heartbeat,
    "listRuns": _list_runs,
    "getRun": _get_run,
    "getRunContext": _get_run_context,
    "getServedChannelConfig": _get_served_channel_config,
}
"""Every one of them by its operation."""
