"""Hold the adapter against the Hermes that is installed here: `python -m tests.hermes_probe`.

In a process of its own, because the tests put stand-ins in the place of Hermes' modules; in a throwaway
profile, because Hermes writes where it looks. Prints one JSON object.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bothy_hermes.demo_profile import ModelChoice, make_profile
from bothy_hermes.gateway_process import GatewayPlace, find_hermes

ROOT = Path(__file__).parents[1]


def probe():
    """What was found, as `look` says it."""
    with tempfile.TemporaryDirectory() as directory:
        place = GatewayPlace(Path(directory) / "profile")
        make_profile(place, ModelChoice("http://127.0.0.1:9/v1", "none", 100_000), {})
        done = subprocess.run(
            [sys.executable, "-m", "tests.hermes_probe", "look"],
            env=place.environment(find_hermes()) | {"PYTHONPATH": str(ROOT)},
            cwd=place.workspace,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def look():
    """Look at everything of Hermes that can be had without a running gateway."""
    from bothy_hermes import hermes_contract, hermes_versions
    from bothy_hermes.hermes_contract import Need

    platform = make_platform()
    there = {"platform": platform, "agent": make_agent()}
    return {
        "version": hermes_versions.hermes_version(),
        "missing": hermes_contract.lacking({Need.CONNECT, Need.SERVE}, there),
        "without": hermes_contract.lacking({Need.NOTHING}, there),
        "unheard": sorted(unheard(type(platform))),
    }


def make_platform():
    """The platform, as Hermes builds it; its class cannot be made while an abstract method is missing."""
    from gateway.config import PlatformConfig
    from gateway.platform_registry import PlatformEntry, platform_registry

    from bothy_hermes import entry

    class Context:
        def register_platform(self, **fields):
            platform_registry.register(PlatformEntry(**fields))
            self.build = fields["adapter_factory"]

        def register_hook(self, name, callback):
            """The table has the hooks."""

    context = Context()
    entry.register(context)
    return context.build(PlatformConfig(enabled=True, extra={}))


def make_agent():
    """An agent that asks nobody anything."""
    from run_agent import AIAgent

    return AIAgent(
        base_url="http://127.0.0.1:9/v1",
        api_key="no-secret",
        provider="custom",
        model="none",
        quiet_mode=True,
    )


def unheard(platform):
    """What Hermes may hand to a method of ours that the method does not take."""
    base = next(one for one in platform.__mro__ if one.__name__ == "BasePlatformAdapter")
    for name, theirs in inspect.getmembers(base, inspect.isfunction):
        ours = getattr(platform, name)
        if ours is theirs or name == "__init__":  # which is called here alone
            continue
        taken = inspect.signature(ours).parameters.values()
        kinds = {one.kind for one in taken}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            continue
        names = {one.name for one in taken}
        for parameter in inspect.signature(theirs).parameters.values():
            passed = parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
            if passed and parameter.name not in names:
                yield f"{name}({parameter.name})"


if __name__ == "__main__":
    found = look() if "look" in sys.argv else probe()
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what Hermes has started in threads is not waited for
