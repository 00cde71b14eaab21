"""What an installation gets: the wheel, its metadata, and the one place of the version."""

import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from bothy_hermes import __version__
from bothy_hermes.defaults import VERSION
from bothy_hermes.gateway_process import HERMES_REQUIREMENT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bothy_hermes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built from a copy of the tree so that nothing is left in it."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(PACKAGE, copy / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", BUILD, "."], cwd=copy, check=True, capture_output=True, timeout=60)
    with zipfile.ZipFile(next(copy.glob("*.whl"))) as archive:
        yield archive


def metadata(wheel, name):
    path = next(one for one in wheel.namelist() if one.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    there = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {f"bothy_hermes/{path.name}" for path in PACKAGE.iterdir() if path.is_file()}
    assert there == expected
    assert there >= {"bothy_hermes/plugin.yaml", "bothy_hermes/local_page.html", "bothy_hermes/py.typed"}


def test_the_package_is_flat():
    assert [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"] == []


def test_decision_1_the_wheel_says_what_it_needs_and_offers(wheel):
    head = email.message_from_string(metadata(wheel, "METADATA"))
    assert head["Version"] == VERSION
    assert head["Requires-Python"] == ">=3.11"
    assert set(head.get_all("Provides-Extra")) == {"hermes", "test", "dev"}
    needed = {line for line in head.get_all("Requires-Dist") if "extra ==" not in line}
    assert {line.split(">=")[0] for line in needed} == {"websockets", "PyJWT", "cryptography"}


def test_hermes_and_a_person_find_their_entries(wheel):
    entries = ConfigParser()
    entries.read_string(metadata(wheel, "entry_points.txt"))
    assert dict(entries["hermes_agent.plugins"]) == {"bothy": "bothy_hermes.entry"}
    assert dict(entries["console_scripts"]) == {"bothy-hermes": "bothy_hermes.__main__:main"}


def test_the_version_has_one_place_and_the_manifest_repeats_it():
    assert __version__ == VERSION
    assert "version" in PROJECT["dynamic"]
    assert yaml.safe_load((PACKAGE / "plugin.yaml").read_text("utf-8"))["version"] == VERSION


def test_the_manifest_asks_for_what_the_package_needs():
    """Hermes installs what the manifest names, pip what the package names."""
    manifest = yaml.safe_load((PACKAGE / "plugin.yaml").read_text("utf-8"))
    assert [one.split(",")[0] for one in manifest["python_dependencies"]] == PROJECT["dependencies"]


def test_the_hermes_that_is_tested_is_the_one_that_the_demo_names():
    pinned = f"{HERMES_REQUIREMENT}; python_version < '3.14'"
    assert pinned in PROJECT["optional-dependencies"]["hermes"]
