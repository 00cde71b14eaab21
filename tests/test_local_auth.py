"""Who is calling the embedded server: tokens, proofs, nonces (section 2)."""

from datetime import timedelta
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bothy_hermes.dpop import ProofSigner
from bothy_hermes.jose import load_private_key
from bothy_hermes.secret import Secret
from tests.fakes.local_kit import BASE, rig


class Prover:
    """Makes proofs for calls on a rig."""

    def __init__(self, made):
        self.made = made
        self.signer = ProofSigner(load_private_key((made.directory / "agent-dpop.pem").read_bytes()))
        self.count = 0

    def proof(self, method, path, token, *, nonce=None, age=0, wrong=()):
        self.count += 1
        values = {
            "method": method,
            "url": BASE + path,
            "token": Secret(token),
            "nonce": nonce,
            "now": self.made.clock.time - timedelta(seconds=age),
            "proof_id": f"proof-{self.count}",
            **dict(wrong),
        }
        return self.signer.proof(values.pop("method"), values.pop("url"), **values)

    def call(self, method, path, token=None, body=None, *, proof=None, **options):
        token = token or self.made.agent_token
        proof = proof or self.proof(method, path, token, **options)
        return self.made.call(method, path, token, body, Authorization=f"DPoP {token}", DPoP=proof)


# Without a key


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic abc", "Bearer "])
def test_no_token_is_a_violation(tmp_path, header):
    with rig(tmp_path, clean=False) as made:
        headers = {} if header is None else {"Authorization": header}
        answer = made.call("GET", "/me", **headers)
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
        assert made.violations == ["getMe: no token"]


def test_an_unknown_token_may_be_an_old_one(tmp_path):
    """The token file may just have been replaced, so it is no violation."""
    with rig(tmp_path) as made:
        old = made.agent_token
        made.instance.rotate_agent_token()
        assert made.call("GET", "/me", old).code == "unauthorized"
        fresh = (tmp_path / "agent.token").read_text().strip()
        assert made.call("GET", "/me", fresh).status == 200


def test_the_keys_need_no_token(tmp_path):
    with rig(tmp_path) as made:
        (key,) = made.call("GET", "/jwks.json").json["keys"]
        assert (key["kty"], key["crv"], key["alg"]) == ("EC", "P-256", "ES256")
        assert "d" not in key


def test_each_operation_takes_its_kind_of_token(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        assert job.call("GET", "/me").code == "forbidden"
        job.token, token = made.agent_token, job.token
        assert job.start().code == "forbidden"
        assert job.call("GET", "").status == 200
        job.token = token
        assert made.violations == [
            "getMe: this kind of token does not serve the operation",
            "startRun: this kind of token does not serve the operation",
        ]


def test_an_expired_run_token_is_expected(tmp_path):
    """The adapter renews with its own token; the old one lives until its `exp`, with 30 s leeway."""
    with rig(tmp_path, token_life_seconds=60) as made:
        job = made.running()
        made.clock.move(89)
        assert job.call("GET", "").status == 200
        made.clock.move(2)
        answer = job.call("GET", "")
        assert (answer.status, answer.code) == (401, "token_expired")


def test_forged_tokens_are_violations(tmp_path):
    with rig(tmp_path / "one", clean=False) as made, rig(tmp_path / "two") as other:
        foreign, own = other.running(), made.running()
        own_token = own.token
        own.token = foreign.token
        assert own.call("GET", "").code == "unauthorized"
        head, body, signature = own_token.split(".")
        own.token = f"{head}.{body}.{signature[:-4]}AAAA"
        assert own.call("GET", "").code == "unauthorized"
        assert [one.partition(" (")[2] for one in made.violations] == ["kid)", "signature)"]


def test_tokens_of_a_retired_key_still_serve(tmp_path):
    """New ones are signed by the new key; the old one may stay published or not."""
    with rig(tmp_path) as made:
        job = made.running()
        made.instance.rotate_signing_key()
        assert len(made.call("GET", "/jwks.json").json["keys"]) == 2
        fresh = made.instance.rotate_signing_key(keep_old=False)
        assert [key["kid"] for key in made.call("GET", "/jwks.json").json["keys"]] == [fresh]
        assert job.renew().status == 200
        last = made.instance.rotate_signing_key()
        assert [key["kid"] for key in made.call("GET", "/jwks.json").json["keys"]] == [fresh, last]


# With a key


def test_a_bound_agent_proves_every_request(tmp_path):
    with rig(tmp_path, dpop=True) as made:
        prover = Prover(made)
        me = prover.call("GET", "/me").json
        assert me["dpop_jkt"] == prover.signer.jkt
        made.connect()
        posted = made.say(made.thread())
        event = made.take()
        assert prover.call("GET", f"/runs/{posted.run_id}", event["token"]).status == 200
        assert made.call("GET", "/jwks.json").status == 200


def test_a_bound_token_as_bearer_is_a_violation(tmp_path):
    with rig(tmp_path, clean=False, dpop=True) as made:
        answer = made.call("GET", "/me", made.agent_token)
        assert (answer.status, answer.code) == (401, "invalid_dpop_proof")
        assert answer.headers["WWW-Authenticate"] == 'DPoP error="invalid_dpop_proof"'
        assert made.violations == ["getMe: the token came under the wrong scheme"]


def test_a_proof_without_a_key_is_a_violation(tmp_path):
    with rig(tmp_path, clean=False) as made:
        answer = made.call("GET", "/me", Authorization=f"DPoP {made.agent_token}", DPoP="x")
        assert answer.code == "invalid_dpop_proof"
        assert len(made.violations) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"method": "POST"}, "htm"),
        ({"url": f"{BASE}/other"}, "htu"),
        ({"token": Secret("other")}, "ath"),
        ({"proof_id": ""}, "claims"),
    ],
)
def test_a_proof_is_for_its_request(tmp_path, wrong, reason):
    with rig(tmp_path, clean=False, dpop=True) as made:
        prover = Prover(made)
        answer = prover.call("GET", "/me", wrong=wrong)
        assert (answer.status, answer.code) == (401, "invalid_dpop_proof")
        assert made.violations == [f"getMe: a proof that proves nothing ({reason})"]


def test_a_stolen_token_is_of_no_use_without_its_key(tmp_path):
    """A proof that is right in everything but its key opens nothing, with either token."""
    with rig(tmp_path, clean=False, dpop=True) as made:
        prover = Prover(made)
        made.connect()
        posted = made.say(made.thread())
        event = made.take()
        prover.signer = ProofSigner(ec.generate_private_key(ec.SECP256R1()))
        assert prover.call("GET", "/me").code == "invalid_dpop_proof"
        assert prover.call("GET", f"/runs/{posted.run_id}", event["token"]).code == "invalid_dpop_proof"
        assert made.violations == [
            f"{name}: a proof that proves nothing (jkt)" for name in ("getMe", "getRun")
        ]


@pytest.mark.parametrize(("age", "status"), [(60, 200), (61, 401), (-30, 200), (-31, 401)])
def test_a_proof_made_at_the_wrong_time_is_expected(tmp_path, age, status):
    """The adapter's clock may be wrong; the answer's `Date` sets it."""
    with rig(tmp_path, dpop=True) as made:
        made.clock.move(3600)
        answer = Prover(made).call("GET", "/me", age=age)
        assert answer.status == status
        assert status == 200 or answer.code == "invalid_dpop_proof"


def test_a_proof_is_used_once(tmp_path):
    with rig(tmp_path, clean=False, dpop=True) as made:
        prover = Prover(made)
        proof = prover.proof("GET", "/me", made.agent_token)
        assert prover.call("GET", "/me", proof=proof).status == 200
        assert prover.call("GET", "/me", proof=proof).code == "invalid_dpop_proof"
        assert made.violations == ["getMe: a proof was sent twice"]


def test_a_demanded_nonce_is_given_and_taken(tmp_path):
    """The challenge is no violation; every answer carries the nonce; the one before is taken as well."""
    with rig(tmp_path, dpop=True) as made:
        prover = Prover(made)
        assert "DPoP-Nonce" not in prover.call("GET", "/me").headers
        made.instance.require_nonces()
        challenge = prover.call("GET", "/me")
        assert (challenge.status, challenge.code) == (401, "use_dpop_nonce")
        assert challenge.headers["WWW-Authenticate"] == 'DPoP error="use_dpop_nonce"'
        nonce = challenge.headers["DPoP-Nonce"]
        assert prover.call("GET", "/me", nonce=nonce).headers["DPoP-Nonce"] == nonce
        made.instance.new_nonce()
        answer = prover.call("GET", "/me", nonce=nonce)
        assert answer.status == 200
        assert answer.headers["DPoP-Nonce"] != nonce
        made.instance.new_nonce()
        assert prover.call("GET", "/me", nonce=nonce).code == "use_dpop_nonce"


def test_nonces_change_by_themselves(tmp_path):
    with rig(tmp_path, dpop=True) as made:
        made.instance.require_nonces()
        prover = Prover(made)
        nonce = prover.call("GET", "/me").headers["DPoP-Nonce"]
        made.clock.move(301)
        assert prover.call("GET", "/me", nonce=nonce).headers["DPoP-Nonce"] != nonce


def test_a_proof_from_before_a_restart_needs_a_nonce(tmp_path):
    """Proofs that the last start had seen are forgotten, so none of them is taken again."""
    with rig(tmp_path, dpop=True) as made:
        prover = Prover(made)
        proof = prover.proof("GET", "/me", made.agent_token)
        assert prover.call("GET", "/me", proof=proof).status == 200
        made.clock.move(2)
        made.restart()
        challenge = prover.call("GET", "/me", proof=proof)
        assert challenge.code == "use_dpop_nonce"
        nonce = challenge.headers["DPoP-Nonce"]
        assert prover.call("GET", "/me", nonce=nonce, age=1).status == 200
        assert prover.call("GET", "/me").status == 200


def test_the_query_is_no_part_of_a_proof(tmp_path):
    with rig(tmp_path, dpop=True) as made:
        prover = Prover(made)
        path = f"/agents/{made.instance.agent.id}/runs"
        proof = prover.proof("GET", path, made.agent_token)
        assert prover.call("GET", f"{path}?state=queued", proof=proof).status == 200


def test_credentials_are_in_no_repr(tmp_path):
    """Neither a person's token nor a request's headers show."""
    with rig(tmp_path) as made:
        job = made.running()
        assert made.ada.token.reveal() not in repr(made.instance.state.people.all())
        assert made.instance.state.keys.all()[0].private_pem.reveal() not in repr(
            made.instance.state.keys.all()
        )
        assert job.token not in repr(job.event["payload"])
        assert isinstance(made.instance.id, UUID)
