"""A server whose events a test bends on their way: what a broken or forged server would deliver.

`bend(server, change)` hands each event's JSON to `change(event, record)` before it is sent; what that
returns travels instead. `sign` makes run tokens with the server's own key.
"""

import base64
import json

from bothy_hermes.jose import load_private_key, sign_compact


def bend(server, change):
    """Change every event from now on; returns a function that ends it."""
    payloads = server.instance.payloads
    usual = payloads.frame

    def frame(record):
        text = json.loads(usual(record))
        text["event"] = change(text["event"], record)
        return json.dumps(text)

    payloads.frame = frame
    return lambda: setattr(payloads, "frame", usual)


def of_type(kind, change):
    """A change of events of one type alone."""

    def changed(event, record):
        return change(event) if record.type == kind else event

    return changed


def claims_of(token):
    """What a token says, unproven."""
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def sign(server, claims, *, key=None, **header):
    """A run token with these claims, signed with the server's key; claims that are None are left out."""
    record = next(one for one in server.instance.state.keys.all() if one.active)
    own = load_private_key(record.private_pem.reveal().encode())
    kept = {name: value for name, value in claims.items() if value is not None}
    return sign_compact({"typ": "bothy-run+jwt", "kid": record.kid} | header, kept, key or own)


def resign(server, *, key=None, header=None, **claims):
    """A change that gives an event a token with other claims."""

    def change(event):
        return event | {"token": sign(server, claims_of(event["token"]) | claims, key=key, **(header or {}))}

    return change
