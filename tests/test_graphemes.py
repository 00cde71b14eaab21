"""Where a text may be cut: never inside what people see as one character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.graphemes import boundary_before, is_boundary

CLUSTERS = {
    "letter with an accent": "e\u0301",
    "letter under many accents": "z" + "\u0301\u0327" * 40,
    "carriage return and line feed": "\r\n",
    "variation selector": "\u2764\ufe0f",
    "keycap": "1\ufe0f\u20e3",
    "skin tone": "\U0001f44d\U0001f3fd",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "professions with a skin tone": "\U0001f469\U0001f3fe\u200d\U0001f692",
    "flag of a country": "\U0001f1e9\U0001f1ea",
    "flag of a subdivision": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "rainbow flag": "\U0001f3f3\ufe0f\u200d\U0001f308",
    "Hangul from letters": "\u1112\u1161\u11ab",
    "Hangul syllable with a final": "\uac00\u11a8",
    "Hebrew with vowels": "\u05e9\u05c1\u05b8",
    "Devanagari conjunct": "\u0915\u094d\u0937",
    "Devanagari vowel sign": "\u0928\u093f",
    "Thai with SARA AM": "\u0e01\u0e33",
    "Arabic number sign": "\u0600\u0661",
    "half-width voiced mark": "\uff76\uff9e",
}


def cuts(text):
    return [index for index in range(len(text) + 1) if is_boundary(text, index)]


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=[name.replace(" ", "-") for name in CLUSTERS])
def test_a_cluster_is_cut_at_its_ends_only(cluster):
    """Alone, doubled and between letters, a cluster stays whole."""
    length = len(cluster)

    assert cuts(cluster) == [0, length]
    assert cuts(cluster * 2) == [0, length, 2 * length]
    assert cuts(f"a{cluster}b") in ([0, 1, 1 + length, 2 + length], [0, 1 + length, 2 + length])
    assert 1 + length in cuts(f" {cluster} ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0]),
        ("ab", [0, 1, 2]),
        ("\n\u0301", [0, 1, 2]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb", [0, 2, 3]),
        ("\uac00\uac01", [0, 1, 2]),
        ("a\u200b\u0301", [0, 1, 2, 3]),
        ("\u0915\u0937", [0, 1, 2]),
        ("\u05d0\u05d1", [0, 1, 2]),
    ],
    ids=["empty", "letters", "accent-alone", "odd-flag", "syllables", "format", "consonants", "hebrew"],
)
def test_what_stands_apart_is_cut_apart(text, expected):
    """Neighbours that make no cluster may be separated."""
    assert cuts(text) == expected


@given(st.text(), st.integers(0, 50))
def test_a_cut_is_a_boundary_near_the_wanted_place(text, index):
    """The cut is the last boundary that is early enough, and something always lies before it."""
    index = min(index, len(text))
    found = boundary_before(text, index)

    assert found <= index
    assert found > 0 or index == 0
    assert is_boundary(text, found) or cuts(text[: index + 1])[1:2] in ([], [index + 1])
    assert not any(is_boundary(text, later) for later in range(found + 1, index + 1))


def test_a_cluster_longer_than_the_limit_is_cut_at_the_limit():
    """A limit holds even against one letter with a thousand accents."""
    text = "z" + "\u0301" * 1000

    assert boundary_before(text, 100) == 100


def test_an_independent_reading_of_the_rules_agrees():
    """Every boundary that is found is one for another implementation of the standard, too."""
    graphemes = pytest.importorskip("wcwidth").iter_graphemes

    @given(st.text(st.sampled_from("".join(CLUSTERS.values()) + "ab \n\u200d\u0301"), max_size=30))
    def compare(text):
        theirs, position = {0}, 0
        for cluster in graphemes(text):
            position += len(cluster)
            theirs.add(position)
        assert set(cuts(text)) <= theirs

    compare()
