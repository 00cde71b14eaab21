"""What the adapter uses of Hermes stands in one table, and the table is held against a Hermes."""

import ast
import importlib.util
import os
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from bothy_hermes import hermes_contract
from bothy_hermes.hermes_contract import OBJECTS, USES, Need, Use
from tests import hermes_probe
from tests.test_layers import HERMES, LAYERS, PACKAGE

ROOMS = [room for room in LAYERS["hermes"] if room != "hermes_contract"]
PLACES = [place for use in USES for place in use.places]

NOT_IN_019 = frozenset(
    {
        "agent:_disable_streaming",
        "gateway.platforms.base:BasePlatformAdapter._send_exec_approval_prompt",
        "gateway.platforms.base:BasePlatformAdapter._send_retry_is_final",
        "gateway.platforms.base:ExecApprovalPrompt",
        "gateway.platforms.event:MessageEvent",
        "gateway.platforms.event:MessageEvent._gateway_accepted",
        "gateway.session_state:SessionState",
        "gateway.session_state:TurnState",
        "hermes_cli.plugins:_resolve_hook_callback_timeout",
        "tools.approval:resolve_gateway_approval",
        "tools.approval:withdraw_gateway_approval",
    }
)
"""What Hermes 0.19 does without, by its first place in the table."""

OF_ANY_OBJECT = frozenset(
    {"agent", "chat_id", "ctx", "error", "message_id", "multi_select", "provider", "turn", "value"}
    | {
        "auth_type",
        "arguments",
        "content",
        "function",
        "name",
        "tool_calls",
        "home_channel",
        "inbound_message_id",
    }
)
"""Attributes of what Hermes hands over, each read with a value for when it is not there."""


# The table is whole ------------------------------------------------------------------------------


def tree(room):
    return ast.parse((PACKAGE / f"{room}.py").read_text("utf-8"))


def own_names():
    """Everything that the package itself defines: methods, classes, attributes of its objects."""
    names = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    names.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


def imported(room):
    """`module:name` of what a room imports from Hermes, a submodule by its own name."""
    for node in ast.walk(tree(room)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] in HERMES:
            yield from (f"{node.module}:{alias.name}" for alias in node.names)


def looked_for(room):
    """`module:name` of the pairs with which `hermes_versions` looks for something."""
    for node in ast.walk(tree(room)):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            values = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if len(values) == 2 and str(values[0]).split(".")[0] in HERMES:
                yield ":".join(values)


def private_names(room, own):
    """Private attributes that are nothing of this package, and what `getattr` asks for by name."""
    for node in ast.walk(tree(room)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            if node.attr not in own:
                yield node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "getattr":
            yield from (one.value for one in node.args[1:2] if isinstance(one, ast.Constant))


@pytest.mark.parametrize("room", ROOMS)
def test_decision_1_every_name_of_hermes_stands_in_the_table(room):
    """A room that takes up another one has it looked for at each start, and in each new Hermes."""
    modules = {place.partition(":")[0] for place in PLACES}
    classes = {place.rpartition(".")[0] for place in PLACES}
    known = {re.split(r"[:.]", place)[-1] for place in PLACES}
    submodules = {f"{module.rpartition('.')[0]}:{module.rpartition('.')[2]}" for module in modules}
    assert sorted({*imported(room), *looked_for(room)} - {*PLACES, *classes, *submodules}) == []
    assert sorted(set(private_names(room, own_names())) - known - OF_ANY_OBJECT) == []


def test_the_table_has_nothing_that_no_room_uses():
    """What is not used must keep no adapter from serving."""
    sources = [(PACKAGE / f"{room}.py").read_text("utf-8") for room in [*ROOMS, "entry"]]
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    read = {"PlatformConfig", "PlatformEntry", "ExecApprovalPrompt", "SessionState", "TurnState"}
    read |= {"AIAgent", "ProcessingOutcome", "CANCELLED", "VALID_HOOKS"}  # known by what is read of them
    assert sorted({re.split(r"[:.]", place)[-1] for place in PLACES} - words - read) == []
    assert len({(use.places, use.names) for use in USES}) == len(USES)


def test_every_owner_is_a_module_of_hermes_or_an_object():
    owners = {place.partition(":")[0] for place in PLACES}
    assert sorted(one for one in owners - OBJECTS if one.split(".")[0] not in {*HERMES, "run_agent"}) == []


# The look ----------------------------------------------------------------------------------------


@pytest.fixture
def look(monkeypatch):
    """Look with a table of one row at a module and an object of the test's."""
    module = ModuleType("a_hermes")
    monkeypatch.setitem(sys.modules, "a_hermes", module)

    def look(places, names=(), need=Need.SERVE, needs=frozenset({Need.SERVE}), objects=None, **members):
        vars(module).update(members)
        monkeypatch.setattr(hermes_contract, "USES", (Use(need, "a test", tuple(places), tuple(names)),))
        return hermes_contract.lacking(needs, objects or {})

    return look


def test_what_is_there_is_not_missing(look):
    assert look(["a_hermes:here"], here=None) == ()


def test_a_missing_thing_is_named_by_its_first_place(look):
    assert look(["a_hermes:gone", "no_such_module:gone"]) == ("a_hermes:gone",)


def test_one_of_several_places_is_enough(look):
    assert look(["no_such_module:moved", "a_hermes:moved"], moved=None) == ()


def test_a_part_of_a_class_is_looked_for_in_it(look):
    assert look(["a_hermes:Agent.steer"], Agent=SimpleNamespace(steer=None)) == ()
    assert look(["a_hermes:Agent.steer"], Agent=SimpleNamespace()) == ("a_hermes:Agent.steer",)


def test_a_parameter_that_is_passed_has_to_be_taken(look):
    assert look(["a_hermes:ask"], ["requested"], ask=lambda *, requested: requested) == ()
    assert look(["a_hermes:ask"], ["requested"], ask=lambda provider: provider) == ("a_hermes:ask",)


def test_a_hook_has_to_be_among_those_that_hermes_knows(look):
    assert look(["a_hermes:HOOKS"], ["pre_llm_call"], HOOKS={"pre_llm_call"}) == ()
    assert look(["a_hermes:HOOKS"], ["pre_llm_call"], HOOKS={"before_llm"}) == ("a_hermes:HOOKS",)


def test_an_object_is_looked_at_where_there_is_one(look):
    """Of an agent nothing can be said before the first turn."""
    assert look(["agent:steer"]) == ()
    assert look(["agent:steer"], objects={"agent": SimpleNamespace(steer=None)}) == ()
    assert look(["agent:steer"], objects={"agent": SimpleNamespace()}) == ("agent:steer",)


def test_whatever_a_changed_hermes_raises_is_no_more_than_a_missing_thing(look):
    class Runner:
        @property
        def session_store(self):
            raise RuntimeError

    assert look(["runner:session_store"], objects={"runner": Runner()}) == ("runner:session_store",)


def test_only_what_is_asked_for_is_told(look):
    assert look(["a_hermes:gone"], need=Need.NOTHING) == ()
    assert look(["a_hermes:gone"], need=Need.NOTHING, needs={Need.NOTHING}) == ("a_hermes:gone",)


# The installed Hermes ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    """What the Hermes beside these tests has and has not; without Hermes the check is nobody's."""
    if importlib.util.find_spec("run_agent") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI runs with the pinned Hermes, and it is not installed")
        pytest.skip("Hermes is not installed in this environment")
    return hermes_probe.probe()


@pytest.mark.hermes
def test_decision_1_the_installed_hermes_has_all_that_is_needed(found):
    """With a new Hermes this is the first test to run: it names what is gone."""
    assert found["missing"] == []


@pytest.mark.hermes
def test_the_installed_hermes_lacks_no_more_than_is_known_of_it(found):
    """What has a way without it goes unseen otherwise, and the way is not always as good."""
    known = NOT_IN_019 if found["version"].startswith("0.19.") else frozenset()
    assert frozenset(found["without"]) == known


@pytest.mark.hermes
def test_the_platform_takes_all_that_hermes_hands_it(found):
    """A parameter that a method of ours does not know is an error in the middle of a turn."""
    assert found["unheard"] == []
