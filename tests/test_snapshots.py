"""No snapshot or cassette without its test."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNAPSHOTS = sorted(path for path in (ROOT / "snapshots").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_snapshot_belongs_to_a_test_module(path):
    module = path.parent.relative_to(ROOT / "snapshots")
    assert (ROOT / "tests" / f"{module}.py").is_file()
    assert path.suffix in {".json", ".txt"}
