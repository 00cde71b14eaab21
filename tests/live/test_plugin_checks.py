"""The package directory before Hermes' own admission checks."""

import subprocess
from pathlib import Path

import pytest

import bothy_hermes
from bothy_hermes.gateway_process import find_hermes
from tests.live.kit import in_019

PACKAGE = Path(bothy_hermes.__file__).parent


@pytest.fixture(scope="module")
def plugins(hermes_installed, tmp_path_factory):
    """Runs `hermes plugins …` in an environment built from nothing."""
    root = tmp_path_factory.mktemp("checks")
    for name in ("home", "user", "managed"):
        (root / name).mkdir()
    environment = {
        "PATH": f"{find_hermes().parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(root / "user"),
        "HERMES_HOME": str(root / "home"),
        "HERMES_MANAGED_DIR": str(root / "managed"),
        "HERMES_DISABLE_LAZY_INSTALLS": "1",
    }

    def run(*arguments):
        return subprocess.run(
            [find_hermes(), "plugins", *arguments],
            env=environment,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    (root / "home" / "plugins").mkdir()
    (root / "home" / "plugins" / "bothy").symlink_to(PACKAGE)
    (root / "home" / "config.yaml").write_text("plugins:\n  enabled: [bothy]\n", "utf-8")
    return run


def test_the_package_is_a_valid_plugin(plugins):
    """Manifest, registration without a manifest, declared hooks, and the scan of every file."""
    if in_019():
        pytest.skip("Hermes 0.19 has no `plugins validate`")
    result = plugins("validate", str(PACKAGE))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Validation passed" in result.stdout
    assert "security scan — safe" in result.stdout


def test_the_doctor_finds_no_fault(plugins):
    """It loads the plugin as Hermes does and makes a hook that it does not know an error."""
    if in_019():
        pytest.skip("Hermes 0.19 has no `plugins doctor`")
    result = plugins("doctor", "--ci", str(PACKAGE))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ERROR" not in result.stdout
    assert "7 hook(s)" in result.stdout


def test_no_import_path_is_about_to_go(plugins):
    """Hermes lists the paths that enabled plugins still use; later versions no longer have the list."""
    if "compat" not in plugins("--help").stdout:
        pytest.skip("this Hermes has no `plugins compat`")
    result = plugins("compat")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No enabled plugin imports paths" in result.stdout
