"""The real gateway with tokens that are bound to a key; `pytest -m live --dpop` runs all modules so."""

from bothy_hermes.local_model_words import LABEL

DPOP = True


def test_a_bound_agent_does_its_turns(world):
    """Every request carries a proof: handshake, patches, messages, the end."""
    assert world.server.agent.dpop_key_file is not None
    said = world.say("note")
    assert said.state == "completed"
    assert said.answer == f"{LABEL} The tool said: noted"
    assert [step["state"] for step in said.steps] == ["completed"]


def test_a_server_that_begins_to_ask_for_nonces_changes_nothing(world):
    """The first refusal brings the nonce, and the call is made again with it."""
    world.server.instance.require_nonces(True)
    assert world.say("repeat one").answer == f"{LABEL} one"
