"""Requests to the scripted model, as Hermes makes them."""

from bothy_hermes.local_model_script import decide

TERMINAL = [{"type": "function", "function": {"name": "terminal"}}]


def ask(*messages, tools=TERMINAL):
    return decide({"messages": list(messages), "tools": tools})


def user(text):
    return {"role": "user", "content": text}


def called(*results):
    """The messages that follow once tools have answered."""
    asked = {"role": "assistant", "content": None, "tool_calls": [{}]}
    return [asked, *({"role": "tool", "content": result} for result in results)]
