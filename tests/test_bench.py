"""The measures themselves: that they measure, and that a figure that is not reached is told."""

import json

import pytest

from tests.bench import __main__ as bench
from tests.bench import updates
from tests.bench.figures import at_least, at_most, for_information, median, table


def test_a_bound_is_kept_or_not():
    assert [at_most("x", value, 15, "ms").ok for value in (14.9, 15, 15.1)] == [True, True, False]
    assert [at_least("x", value, 0.5).ok for value in (0.4, 0.5, 0.6)] == [False, True, True]
    assert for_information("x", 1e9, "B").ok


def test_the_table_names_what_is_not_reached():
    lines = table([at_most("slow", 20.1234, 15, "ms"), at_least("fine", 1, 0.5)]).splitlines()
    assert lines[1].split() == ["slow", "20.123", "ms", "at", "most", "15", "NOT", "REACHED"]
    assert lines[2].split() == ["fine", "1", "ratio", "at", "least", "0.5", "ok"]


def test_the_middle_of_values():
    assert median([5, 1, 100]) == 5


@pytest.mark.parametrize("reached", [True, False])
def test_json_holds_machine_and_figures_and_the_status_says_whether_all_are_reached(
    monkeypatch, capsys, reached
):
    figure = at_most("one of many", 1, 2 if reached else 0.5, "µs")
    monkeypatch.setattr(bench, "run", lambda names: [figure] * len(names))
    monkeypatch.setattr(bench.logging, "disable", lambda _level: None)
    status = bench.main(["--json", "updates"])
    told = json.loads(capsys.readouterr().out)
    assert status == (0 if reached else 1)
    assert set(told) == {"machine", "figures"}
    assert told["machine"]["processors"] >= 1
    assert told["figures"] == [
        {
            "name": "one of many",
            "value": 1,
            "unit": "µs",
            "reach": "at most 2" if reached else "at most 0.5",
            "ok": reached,
        }
    ]


def test_a_measure_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["tea"])
    assert "no such measure: tea" in capsys.readouterr().err


def test_every_measure_can_be_imported_without_hermes():
    for name in (*bench.MEASURES, *bench.LIVE_MEASURES):
        assert callable(bench.importlib.import_module(f"tests.bench.{name}").measure)


def test_a_quick_measure_measures(monkeypatch, tmp_path):
    """The real thing, smaller: a hundred updates are counted, and few patches come of them."""
    monkeypatch.setattr(updates, "UPDATES", 1_000)
    one, patches = updates.measure(tmp_path)
    assert 0 < one.value < 1_000
    assert patches.ok
