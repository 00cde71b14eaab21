"""Which kind of credential Hermes would spend with."""

import pytest

from bothy_hermes.actual_mode import determine
from bothy_hermes.hermes_credential import (
    UNKNOWN_CREDENTIAL,
    Route,
    credential_of,
    kind_in_use,
    kind_of_answer,
    other_routes,
    pays_same,
    resolve_credential,
)
from bothy_hermes.runtime import ResolvedCredential, Spending
from bothy_hermes.turn_facts import Payee
from bothy_hermes.wire_words import BillingMode, KeyType
from tests.fakes import hermes
from tests.fakes.hermes import credential

KEY, LOGIN = "sk-ant-api03-abcdef", "sk-ant-oat01-abcdef"
ORGANIZATION, PERSONAL = BillingMode.ORGANIZATION, BillingMode.PERSONAL


def answer(key=KEY, provider="anthropic", **more):
    """What Hermes resolves."""
    return {"provider": provider, "api_key": key, "api_mode": "anthropic_messages", **more}


def mode_of(state):
    """The mode that the resolution of this Hermes proves."""
    return determine(resolve_credential().credential).mode


@pytest.mark.parametrize(
    ("name", "resolved", "pool", "mode"),
    [
        ("a key", answer(KEY), [credential(KEY)], ORGANIZATION),
        ("a key beside a login file", answer(KEY), [credential(KEY)], ORGANIZATION),
        ("a login in a variable", answer(LOGIN), [credential(LOGIN, source="env:ANTHROPIC_TOKEN")], PERSONAL),
        ("a login in the key's variable", answer(LOGIN), [credential(LOGIN)], PERSONAL),
        (
            "a login variable beside a key",
            answer(LOGIN),
            [credential(LOGIN, source="env:ANTHROPIC_TOKEN"), credential(KEY)],
            PERSONAL,
        ),
        (
            "only a login file",
            AssertionError("asking would refresh another tool's login"),
            [credential(LOGIN, auth_type="oauth", source="claude_code")],
            PERSONAL,
        ),
        ("another provider's key", answer("sk-or-v1-abc", "openrouter"), [], ORGANIZATION),
        (
            "a pool with both kinds",
            AssertionError("not asked"),
            [credential(KEY), credential(LOGIN, auth_type="oauth", source="manual")],
            None,
        ),
        ("no key required", answer("no-key-required", "custom"), [], None),
        ("an example out of a documentation", answer("changeme", "custom"), [], None),
        ("an empty key", answer(""), [], None),
        ("a program's own login", answer("copilot-acp", "copilot-acp"), [], None),
        ("a key that is made anew each time", answer(lambda: KEY), [], None),
        ("a key that is not used", answer(KEY, api_mode="codex_app_server"), [], None),
        ("a login that failed before", answer(KEY, auth_error="expired"), [], None),
        ("no provider", {"api_key": KEY}, [], None),
        (
            "another provider's login",
            answer("token-abcdef", "x"),
            [credential("token-abcdef", auth_type="oauth_device", source="device")],
            None,
        ),
        ("another server that gets Anthropic's login", answer(LOGIN, "custom"), [], None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_decision_4_the_kind_of_credential_proves_the_mode(monkeypatch, name, resolved, pool, mode):
    """Each row of what a profile can hold; what proves nothing gives no mode."""
    state = hermes.installed(monkeypatch)
    provider = resolved.get("provider", "anthropic") if isinstance(resolved, dict) else "anthropic"
    state.requested, state.runtime, state.pools = provider, resolved, {provider: pool}
    assert mode_of(state) is mode


@pytest.mark.parametrize(
    "kind", ["oauth_external", "oauth_device_code", "aws_sdk", "vertex", "external_process"]
)
def test_decision_4_a_provider_without_keys_is_never_asked(monkeypatch, kind):
    """Clouds, programs and other logins prove nothing, and asking would log in."""
    state = hermes.installed(monkeypatch)
    state.requested, state.auth_types = "p", {"p": kind}
    state.runtime = AssertionError("not asked")
    assert mode_of(state) is None
    assert state.asked == []


@pytest.mark.parametrize("provider", ["copilot", "copilot-acp", "moa"])
def test_an_account_that_looks_like_a_key_proves_nothing(monkeypatch, provider):
    """Hermes lists them as keyed; what they spend is an account's."""
    state = hermes.installed(monkeypatch)
    state.requested, state.runtime = provider, answer("gho-abcdef", provider)
    assert mode_of(state) is None


def test_what_hermes_raises_is_the_callers_to_take_for_unknown(monkeypatch):
    """No credential at all is an error in Hermes."""
    state = hermes.installed(monkeypatch)
    state.runtime = RuntimeError("no credential")
    with pytest.raises(RuntimeError):
        resolve_credential()


def test_a_mixed_pool_is_named(monkeypatch):
    """The operator is told which key to look at."""
    state = hermes.installed(monkeypatch)
    state.pools["anthropic"] = [credential(KEY), credential(LOGIN, auth_type="oauth", source="manual")]
    found = resolve_credential()
    assert found.problem is not None
    assert found.problem.startswith("credential_pool.anthropic:")


def test_the_answer_is_of_the_provider_that_was_looked_at(monkeypatch):
    """The configuration may name another one between the two looks."""
    state = hermes.installed(monkeypatch)
    state.requested = "zai"
    state.runtime = answer("some-key-abc", "zai")
    assert resolve_credential().credential == ResolvedCredential("zai", KeyType.API_KEY)
    assert state.asked == [{"requested": "zai"}]


class TestOtherRoutes:
    """A fallback or an auxiliary model can spend elsewhere, in the middle of a turn."""

    def by_provider(self, **asked):
        """Anthropic by key, `personal` by login, `broken` not at all."""
        provider = asked.get("requested", "anthropic")
        if provider == "broken":
            return LookupError("no such provider")
        return answer(LOGIN) if provider == "personal" else answer("some-key-abc", provider)

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({"fallback_model": {"provider": "personal"}}, "fallback_model:"),
            (
                {"fallback_providers": [{"provider": "zai"}, {"provider": "personal"}]},
                "fallback_providers[1]:",
            ),
            ({"fallback_providers": [{"provider": "broken"}]}, "fallback_providers[0]:"),
            ({"auxiliary": {"title_generation": {"provider": "personal"}}}, "auxiliary.title_generation:"),
            (
                {"auxiliary": {"vision": {"provider": "auto", "fallback_chain": [{"provider": "personal"}]}}},
                "auxiliary.vision.fallback_chain[0]:",
            ),
            ({"delegation": {"provider": "personal"}}, "delegation:"),
            (
                {"delegation": {"fallback_providers": [{"provider": "personal"}]}},
                "delegation.fallback_providers[0]:",
            ),
        ],
    )
    def test_decision_4_another_mode_beside_the_main_one_is_unknown(self, monkeypatch, config, named):
        """The key that does it is named, so that the operator can take it away."""
        state = hermes.installed(monkeypatch)
        state.runtime, state.config = self.by_provider, config
        found = resolve_credential()
        assert found.credential == UNKNOWN_CREDENTIAL
        assert found.problem is not None
        assert found.problem.startswith(named)

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {
                "fallback_providers": [{"provider": "zai"}],
                "auxiliary": {"vision": {"provider": "openrouter"}},
            },
            {
                "auxiliary": {"vision": {"provider": "auto"}, "transient_retries": 2},
                "delegation": {"provider": ""},
            },
            {"fallback_providers": "nonsense", "auxiliary": None, "delegation": []},
        ],
    )
    def test_routes_of_the_same_mode_change_nothing(self, monkeypatch, config):
        """Two keys are both the organization's."""
        state = hermes.installed(monkeypatch)
        state.runtime, state.config = self.by_provider, config
        found = resolve_credential()
        assert found.credential == ResolvedCredential("anthropic", KeyType.API_KEY)
        assert found.problem is None

    def test_a_route_is_asked_with_what_it_states(self, monkeypatch):
        """A server and a key of its own, not the main model's."""
        state = hermes.installed(monkeypatch)
        state.runtime = self.by_provider
        state.config = {"auxiliary": {"vision": {"base_url": "https://v.example", "api_key": "k-abcdef"}}}
        resolve_credential()
        assert state.asked[1] == {
            "requested": "custom",
            "explicit_api_key": "k-abcdef",
            "explicit_base_url": "https://v.example",
        }

    @pytest.mark.parametrize(
        ("block", "routes"),
        [
            ({"provider": " ZAI "}, [Route("fallback_model", "zai", None)]),
            ({"base_url": " u ", "api_key": " k "}, [Route("fallback_model", "custom", "u", "k")]),
            ({"provider": "Auto", "base_url": "u"}, [Route("fallback_model", "custom", "u")]),
            ({"provider": "auto", "base_url": " "}, []),
            ({"provider": "main"}, []),
            ({"provider": "none"}, []),
            ({"model": "m"}, []),
        ],
    )
    def test_a_place_is_a_route_when_it_names_somebody(self, block, routes):
        """By a provider's name or by an address; everything else is the main model's way."""
        assert list(other_routes({"fallback_model": block})) == routes

    def test_no_route_repeats_a_key(self):
        """What is logged of a route is its key's name."""
        routes = list(other_routes({"fallback_model": {"provider": "zai", "api_key": "secret"}}))
        assert "secret" not in repr(routes)


def test_an_answer_keeps_no_value():
    """Only the provider's name and the kind remain."""
    assert kind_of_answer(answer(KEY)) == ResolvedCredential("anthropic", KeyType.API_KEY)
    assert "abcdef" not in repr(kind_of_answer(answer(KEY)))


@pytest.mark.parametrize(
    ("provider", "key", "kind"),
    [
        ("anthropic", "eyJhbGciOi", KeyType.OAUTH),
        ("anthropic", "cc-abcdef", KeyType.OAUTH),
        ("anthropic", KEY, KeyType.API_KEY),
        ("minimax", "eyJhbGciOi", KeyType.API_KEY),
        ("custom", "cc-abcdef", KeyType.API_KEY),
        ("custom", LOGIN, KeyType.OAUTH),
        ("example", "example", KeyType.UNKNOWN),
        ("custom", "dummy-lm-api-key", KeyType.UNKNOWN),
        ("custom", "dummy-actual-local-api-key", KeyType.UNKNOWN),
    ],
)
def test_a_shape_means_a_login_where_it_is_anthropics(monkeypatch, provider, key, kind):
    """Other providers sell keys of the same shapes; the provider's name and a placeholder are no keys."""
    hermes.installed(monkeypatch)
    assert kind_of_answer(answer(key, provider)).key_type is kind


class TestOneRequest:
    """Whom one model request pays."""

    EVIDENCE = Spending(ORGANIZATION, "custom", "http://127.0.0.1:9/v1")

    @pytest.mark.parametrize(
        ("payee", "same"),
        [
            (Payee("custom", "http://127.0.0.1:9/v1"), True),
            (Payee("custom", "http://127.0.0.1:9/v1/"), True),
            (Payee("custom", " http://127.0.0.1:9/v1 "), True),
            (Payee("custom", "http://LocalHost:9/v1"), False),
            (Payee("custom", "http://127.0.0.1:9/V1"), False),
            (Payee("auto", "http://127.0.0.1:9/v1"), True),
            (Payee("custom", "http://127.0.0.1:8/v1"), False),
            (Payee("custom", "http://127.0.0.1:9/v2"), False),
            (Payee("custom", ""), False),
            (Payee("openrouter", "http://127.0.0.1:9/v1"), False),
            (Payee("custom", "http://127.0.0.1:9/v1", "codex_app_server"), False),
        ],
    )
    def test_the_same_is_paid_by_provider_and_server(self, payee, same):
        """An interface that uses a login of its own is never the same."""
        assert pays_same(payee, self.EVIDENCE) is same

    def test_a_hosts_name_is_the_same_however_it_is_written(self):
        """As the web has it; a path is not."""
        evidence = Spending(ORGANIZATION, "custom", "https://Models.Example/v1")
        assert pays_same(Payee("custom", "https://models.example/v1"), evidence)

    @pytest.mark.parametrize(
        ("provider", "named", "same"),
        [("anthropic", "anthropic", True), ("anthropic", "auto", False), ("custom", "custom", False)],
    )
    def test_without_a_server_in_the_evidence_the_provider_says_enough(self, provider, named, same):
        """But for servers of one's own, and where no provider is named."""
        evidence = Spending(ORGANIZATION, provider)
        assert pays_same(Payee(named, "https://api.anthropic.com"), evidence) is same

    def test_a_provider_is_judged_as_hermes_resolves_it(self, monkeypatch):
        """By its name; the address would have Hermes look for another key."""
        state = hermes.installed(monkeypatch)
        state.runtime = answer("sk-or-v1-abc", "openrouter")
        found = credential_of(Payee("openrouter", "https://openrouter.ai/api/v1"))
        assert found == ResolvedCredential("openrouter", KeyType.API_KEY)
        asked = {"requested": "openrouter", "explicit_api_key": None, "explicit_base_url": None}
        assert state.asked == [asked]

    def test_a_server_of_ones_own_is_judged_by_its_address(self, monkeypatch):
        """Whatever name Hermes gives it."""
        state = hermes.installed(monkeypatch)
        state.runtime = answer("no-key-required", "custom")
        for name in ("custom", "auto"):
            assert credential_of(Payee(name, "http://127.0.0.1:8/v1")) == UNKNOWN_CREDENTIAL
        assert {one["explicit_base_url"] for one in state.asked} == {"http://127.0.0.1:8/v1"}

    @pytest.mark.parametrize(
        ("keys", "kind"), [(["some-key"], KeyType.API_KEY), (["some-key", LOGIN], KeyType.UNKNOWN)]
    )
    def test_a_key_that_the_configuration_states_counts(self, monkeypatch, keys, kind):
        """And where it states several kinds for one server, nobody can tell which is meant."""
        state = hermes.installed(monkeypatch)
        url = "http://127.0.0.1:8/v1"
        state.config = {
            "fallback_providers": [{"provider": "custom", "base_url": url, "api_key": key} for key in keys],
            "fallback_model": {"provider": "zai", "base_url": url, "api_key": LOGIN},
            "delegation": {"provider": "custom", "base_url": "http://127.0.0.1:7/v1", "api_key": LOGIN},
        }
        state.runtime = lambda **asked: answer(asked["explicit_api_key"] or "no-key-required", "custom")
        assert credential_of(Payee("custom", f"{url}/")).key_type is kind

    def test_a_key_that_is_stated_for_a_provider_counts_at_its_own_server(self, monkeypatch):
        """The configuration need not say where a provider is."""
        state = hermes.installed(monkeypatch)
        state.config = {"fallback_model": {"provider": "zai", "api_key": "some-key"}}
        state.runtime = lambda **asked: answer(asked["explicit_api_key"], "zai")
        found = credential_of(Payee("zai", "https://api.z.ai/v1"))
        assert found == ResolvedCredential("zai", KeyType.API_KEY)

    @pytest.mark.parametrize(
        "payee", [Payee(""), Payee("openai-codex", "", "codex_app_server"), Payee("moa", "moa://local")]
    )
    def test_what_pays_by_a_login_of_its_own_or_nobody_proves_nothing(self, monkeypatch, payee):
        """Hermes is not even asked."""
        state = hermes.installed(monkeypatch)
        state.runtime = AssertionError("not asked")
        assert credential_of(payee) == UNKNOWN_CREDENTIAL

    @pytest.mark.parametrize(
        ("provider", "key", "kind"),
        [
            ("anthropic", KEY, KeyType.API_KEY),
            ("anthropic", LOGIN, KeyType.OAUTH),
            ("custom", LOGIN, KeyType.OAUTH),
            ("custom", "no-key-required", None),
            ("anthropic", "", None),
            ("anthropic", None, None),
            ("azure", lambda: KEY, None),
        ],
    )
    def test_the_key_in_use_is_judged_by_its_shape(self, monkeypatch, provider, key, kind):
        """What is no key, or none that can be looked at, says nothing."""
        hermes.installed(monkeypatch)
        assert kind_in_use(provider, key) is kind

    def test_the_server_is_part_of_what_is_found(self, monkeypatch):
        """The evidence of a run holds its requests to it; nobody sees it."""
        state = hermes.installed(monkeypatch)
        state.requested = "custom"
        state.runtime = answer("some-key", "custom", base_url="http://127.0.0.1:9/v1")
        found = resolve_credential().credential
        assert found.base_url == "http://127.0.0.1:9/v1"
        assert "127.0.0.1" not in repr(found)
