"""The first state of an instance, and what a later start leaves alone."""

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from tests.fakes.local_kit import rig
from tests.fakes.local_wire import call


def test_the_first_state(tmp_path):
    """An owner who approves actions, a member, one agent that both may address, one served channel."""
    with rig(tmp_path) as made:
        instance = made.instance
        assert [(one.name, one.role, one.approve_actions) for one in instance.people()] == [
            ("Ada", "owner", True),
            ("Ben", "member", False),
        ]
        assert (instance.agent.name, instance.agent.owner_id) == ("Hermes", made.ada.id)
        assert [(one.principal_id, one.run_kinds) for one in instance.agent.allow] == [
            (made.ada.id, ("operator",)),
            (made.ben.id, ("operator",)),
        ]
        assert [(one.name, one.served) for one in instance.channels()] == [("general", True)]
        assert instance.id.version == 7


def test_nothing_is_set_back_by_a_restart(tmp_path):
    with rig(tmp_path) as made:
        made.instance.change_person(made.ben.id, approve_actions=True)
        made.instance.set_allowed(made.ben.id, ())
        made.instance.require_nonces()
        made.restart()
        assert made.ben.approve_actions
        assert len(made.instance.agent.allow) == 1
        assert made.instance.nonces_required


def test_a_dpop_key_stays(tmp_path):
    for options in (ServerOptions(dpop=True), ServerOptions()):
        server = LocalServer.start(tmp_path, options=options)
        assert server.agent.dpop_key_file == tmp_path / "agent-dpop.pem"
        server.stop()


def test_an_agent_token_file_that_is_gone_is_made_anew(tmp_path):
    server = LocalServer.start(tmp_path)
    server.stop()
    server.agent.token_file.unlink()
    server = LocalServer.start(tmp_path)
    try:
        token = server.agent.token_file.read_text().strip()
        assert call(server, "GET", "/me", token).status == 200
    finally:
        server.stop()
