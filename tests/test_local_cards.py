"""Cards and interactions on the embedded server (sections 7 and 10)."""

from uuid import UUID

import pytest

from bothy_hermes.errors import IllegalMove
from bothy_hermes.local_records import CardState
from bothy_hermes.local_rules import Refused, check_card_move
from bothy_hermes.wire_words import RunState
from tests.fakes.local_kit import button, rig, select


def state_of(made, card):
    return made.instance.state.cards.need(UUID(card)).state


def components_of(made, card):
    return made.instance.message(UUID(card)).components


def closed_of(made, card):
    return made.instance.message(UUID(card)).closed


def test_a_run_waits_on_a_card_and_goes_on(tmp_path):
    """await opens the card, a click disables it, resume answers it, the response acknowledges."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(button("yes"), button("no"))
        view = job.wait(card, "waiting for you").json
        assert (view["run"]["state"], view["open_cards"]) == ("waiting_input", [card])
        assert (view["document"]["version"], view["document"]["status_line"]) == (2, "waiting for you")
        used = job.use(card, "no")
        assert all(one.disabled for one in components_of(made, card))
        event = made.take()
        assert event["type"] == "interaction.created"
        assert event["payload"]["interaction"] == {
            "id": str(used.interaction.id),
            "run_id": str(job.id),
            "message_id": card,
            "component_id": str(used.interaction.component_id),
            "custom_id": "no",
            "values": [],
            "operator_id": str(made.ada.id),
        }
        view = job.resume(card).json
        assert (view["run"]["state"], view["open_cards"]) == ("running", [])
        answer = job.respond(used.interaction.id, text="understood")
        assert answer.json == {
            "id": str(used.interaction.id),
            "status": "acknowledged",
            "text": "understood",
        }
        assert closed_of(made, card) is None
        shut = job.close(card, "answered").json
        assert (shut["closed"], shut["version"]) == ("answered", 3)
        assert job.finish().status == 200


def test_without_a_status_line_the_document_stays(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        assert job.wait(job.card()).json["document"]["version"] == 1


def test_several_cards_are_open_each_by_itself(tmp_path):
    """A click answers exactly its own card; the run waits as long as one is open."""
    with rig(tmp_path) as made:
        job = made.running()
        first, second = job.card(), job.card()
        job.wait(first)
        assert job.wait(second).json["open_cards"] == [first, second]
        job.use(second)
        made.take()
        view = job.resume(second).json
        assert (view["run"]["state"], view["open_cards"]) == ("waiting_input", [first])
        assert components_of(made, first)[0].disabled is None
        job.use(first)
        made.take()
        assert job.resume(first).json["run"]["state"] == "running"


@pytest.mark.parametrize(("cause", "closed"), [("followup", "answered"), ("prompt_expired", "expired")])
def test_resume_without_a_click_closes_the_card(tmp_path, cause, closed):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        changes = {}
        if cause == "followup":
            posted = made.say(made.instance.thread(job.thread_id), "the blue one")
            made.take()
            changes["followup_message_id"] = str(posted.message.id)
        assert job.resume(card, cause, **changes).status == 200
        assert closed_of(made, card) == closed
        with pytest.raises(Refused) as caught:
            job.use(card)
        assert caught.value.code == "card_closed"


def test_resume_carries_evidence(tmp_path):
    """Money or tools that changed while the run waited stop it; the card stays open."""
    with rig(tmp_path, tool_class="scoped") as made:
        job = made.offered()
        job.start(tool_class="chat")
        card = job.card()
        job.wait(card)
        for changes in ({"billing_mode": "personal", "tool_class": "chat"}, {"tool_class": "host"}):
            refused = job.resume(card, "prompt_expired", **changes)
            assert refused.status == 409
        assert job.view.open_cards == (UUID(card),)
        assert job.resume(card, "prompt_expired", tool_class="chat").status == 200


@pytest.mark.parametrize(
    ("cause", "changes", "code"),
    [
        ("interaction", {}, "run_not_waiting"),
        ("followup", {}, "validation_failed"),
        ("followup", {"followup_message_id": "00000000-0000-4000-8000-000000000001"}, "run_not_waiting"),
        (
            "prompt_expired",
            {"followup_message_id": "00000000-0000-4000-8000-000000000001"},
            "validation_failed",
        ),
    ],
)
def test_a_cause_that_did_not_happen(tmp_path, cause, changes, code):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        assert job.resume(card, cause, **changes).code == code
        assert job.run.state is RunState.WAITING_INPUT
        assert len(made.violations) == 1


def test_only_a_follow_up_of_the_run_is_its_answer(tmp_path):
    """Neither the message that the run began with nor a text in another thread has answered its card."""
    with rig(tmp_path, clean=False) as made:
        job, other = made.running(), made.running()
        card = job.card()
        job.wait(card)
        elsewhere = made.say(made.instance.thread(other.thread_id), "yes").message.id
        made.take()
        for text in (job.run.trigger_message_id, elsewhere):
            assert job.resume(card, "followup", followup_message_id=str(text)).code == "run_not_waiting"
        assert job.view.open_cards == (UUID(card),)
        assert made.violations == ["resumeRun: nothing of the cause happened"] * 2


def test_a_card_that_awaits_nothing_is_not_resumed(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        assert job.resume(card, "prompt_expired").code == "run_not_waiting"
        assert made.violations == ["resumeRun: the card awaits nothing"]


def test_a_queued_run_waits_on_nothing(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        other = made.offered()
        assert other.wait(card).code == "forbidden"
        assert other.write().code == "run_not_running"


def test_a_card_is_used_before_the_run_waits(tmp_path):
    """The server takes the click; the await that follows is taken, and the resume after it."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        used = job.use(card)
        made.take()
        assert job.wait(card).json["run"]["state"] == "waiting_input"
        assert job.resume(card).json["run"]["state"] == "running"
        assert job.respond(used.interaction.id).status == 200


def test_the_first_click_counts(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(button("yes"), button("no"))
        job.use(card, "yes")
        with pytest.raises(Refused) as caught:
            job.use(card, "no", made.ben)
        assert caught.value.code == "card_closed"
        assert len(made.instance.interactions(UUID(card))) == 1


def test_a_refused_person_uses_nothing_up(tmp_path):
    """Restriction and capability are checked before anything is accepted."""
    with rig(tmp_path) as made:
        job = made.running(person=made.ben)
        card = job.card(
            button("starter", restricted_to="run_starter"),
            button("owner", restricted_to="owner"),
            button("approve", required_capability="approve_actions"),
        )
        for custom_id, person in [("starter", made.ada), ("owner", made.ben), ("approve", made.ben)]:
            with pytest.raises(Refused) as caught:
                job.use(card, custom_id, person)
            assert caught.value.status == 403
        assert not any(one.disabled for one in components_of(made, card))
        assert job.use(card, "approve", made.ada).interaction.custom_id == "approve"


def test_values_fit_their_component(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(select("pick", values=("a", "b")), button("yes"))
        for custom_id, values in [("pick", ()), ("pick", ("c",)), ("pick", ("a", "b")), ("yes", ("a",))]:
            with pytest.raises(Refused) as caught:
                job.use(card, custom_id, values=values)
            assert caught.value.status == 422
        assert job.use(card, "pick", values=("b",)).interaction.values == ("b",)


def test_a_component_for_many_uses_answers_no_card(tmp_path):
    """It disables nothing, can be used again, and no wait ends by it."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card(button("more", single_use=False), button("yes"))
        job.wait(card)
        used = [job.use(card, "more"), job.use(card, "more", made.ben)]
        for _ in used:
            made.take()
        assert not any(one.disabled for one in components_of(made, card))
        assert job.respond(used[0].interaction.id).status == 200
        assert made.violations == []
        assert job.resume(card).code == "run_not_waiting"


def test_failed_with_reopen_makes_the_card_usable_again(tmp_path):
    """A card that is open stays open, and the click that was given back resumes nothing."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card(button("yes"), button("never", disabled=True))
        job.wait(card)
        used = job.use(card)
        made.take()
        assert job.respond(used.interaction.id, "failed", text="try again", reopen=True).status == 200
        assert [one.disabled for one in components_of(made, card)] == [None, True]
        assert job.view.open_cards == (UUID(card),)
        assert job.resume(card).code == "run_not_waiting"
        assert made.violations == ["resumeRun: nothing of the cause happened"]
        again = job.use(card, person=made.ben)
        made.take()
        assert job.resume(card).status == 200
        assert job.respond(again.interaction.id).status == 200


def test_only_the_accepted_click_can_be_given_back(tmp_path):
    """What was used for many uses took nothing, so its `reopen` does not undo somebody else's click."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(button("yes"), button("more", single_use=False))
        job.wait(card)
        many = job.use(card, "more")
        made.take()
        used = job.use(card, "yes")
        made.take()
        assert job.respond(many.interaction.id, "failed", reopen=True).status == 200
        assert [one.disabled for one in components_of(made, card)] == [True, None]
        with pytest.raises(Refused, match="card_closed"):
            job.use(card, "yes", person=made.ben)
        assert job.resume(card).status == 200
        assert job.respond(used.interaction.id).status == 200


def test_a_resumed_card_that_is_reopened_awaits_again(tmp_path):
    """`reopen` makes the next await and resume of the card new calls, not repetitions."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        for _ in range(2):
            assert job.wait(card).json["run"]["state"] == "waiting_input"
            assert job.view.open_cards == (UUID(card),)
            used = job.use(card)
            made.take()
            assert job.resume(card).json["run"]["state"] == "running"
            assert job.view.open_cards == ()
            assert job.respond(used.interaction.id, "failed", reopen=True).status == 200
            assert state_of(made, card) is CardState.POSTED
        assert job.close(card, "cancelled").json["closed"] == "cancelled"


def test_a_closed_card_is_not_reopened(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        used = job.use(card)
        made.take()
        job.resume(card, "prompt_expired")
        assert job.respond(used.interaction.id, "failed", text="too late", reopen=True).status == 200
        assert components_of(made, card)[0].disabled is True
        assert closed_of(made, card) == "expired"


def test_acknowledged_comes_after_resume(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        used = job.use(card)
        made.take()
        assert job.respond(used.interaction.id).code == "run_not_waiting"
        assert made.violations == ["respondToInteraction: acknowledged before the run was resumed"]
        job.resume(card)
        assert job.respond(used.interaction.id).status == 200
        assert job.respond(used.interaction.id, "failed").code == "interaction_answered"


def test_a_click_before_the_wait_is_acknowledged_after_both(tmp_path):
    """The card is not open yet, and its answer comes after the resume all the same."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        used = job.use(card)
        made.take()
        assert job.respond(used.interaction.id).code == "run_not_waiting"
        assert made.violations == ["respondToInteraction: acknowledged before the run was resumed"]
        job.wait(card)
        job.resume(card)
        assert job.respond(used.interaction.id).status == 200


def test_an_interaction_is_answered_after_its_ack(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        used = job.use(card)
        made.events()
        assert job.resume(card).status == 409
        assert job.respond(used.interaction.id, "failed").status == 409
        assert len(made.violations) == 2


def test_reopen_belongs_to_failed(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        used = job.use(card)
        made.take()
        job.resume(card)
        assert job.respond(used.interaction.id, reopen=True).status == 422


# closeCard


def test_an_open_card_is_not_closed(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        assert job.close(card).code == "card_open"
        assert made.violations == ["closeCard: the run waits on this card"]


def test_closing_loses_the_race_against_a_click(tmp_path):
    """The card stays as it is, and closing it once the click was answered is a new call."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        used = job.use(card)
        answer = job.close(card)
        assert (answer.status, answer.json["closed"]) == (200, None)
        made.take()
        assert job.respond(used.interaction.id, "failed", text="too late").status == 200
        assert job.close(card).json["closed"] == "expired"


def test_an_acked_click_is_answered_before_its_card_is_closed(tmp_path):
    """A close that was already on its way when the ack came is forgiven, a later one is not."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.use(card)
        made.take()
        assert job.close(card).json["closed"] is None
        made.clock.move(3)
        assert job.close(card).status == 409
        assert made.violations == ["closeCard: an interaction was acked and not answered"]


def test_an_unanswered_use_of_many_does_not_hold_a_card(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(button("more", single_use=False))
        job.use(card)
        made.take()
        made.clock.move(60)
        assert job.close(card).json["closed"] == "expired"


def test_a_closed_card_answers_as_it_is(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        assert job.close(card, "expired").json["closed"] == "expired"
        assert job.close(card, "cancelled").json["closed"] == "expired"


def test_a_text_is_no_card(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        message = job.write().json["id"]
        assert job.close(message).status == 422
        assert job.wait(message).status == 422


def test_awaiting_an_open_or_closed_card_is_out_of_order(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        assert job.wait(card, "again").code == "card_open"
        job.resume(card, "prompt_expired")
        assert job.wait(card, "again").code == "card_closed"
        assert len(made.violations) == 2


# The end of the run


def test_a_run_with_an_open_card_does_not_complete(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        assert job.finish().code == "card_open"
        assert made.violations == ["finishRun: the run waits on a card"]
        assert job.finish("failed", "runtime_error").status == 200
        assert closed_of(made, card) == "cancelled"


def test_the_end_closes_every_card(tmp_path):
    """What was answered is closed as answered, everything else as cancelled."""
    with rig(tmp_path) as made:
        job = made.running()
        answered, posted, waiting = job.card(), job.card(), job.card()
        job.wait(answered)
        job.use(answered)
        made.take()
        job.resume(answered)
        job.wait(waiting)
        made.instance.cancel_run(made.ada.id, job.id)
        found = [closed_of(made, card) for card in (answered, posted, waiting)]
        assert found == ["answered", "cancelled", "cancelled"]
        with pytest.raises(Refused) as caught:
            job.use(posted)
        assert caught.value.code == "run_ended"


def test_after_the_end_cards_and_interactions_may_still_be_answered(tmp_path):
    """closeCard and respondToInteraction find nothing to do."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        job.wait(card)
        used = job.use(card)
        made.take()
        made.instance.cancel_run(made.ada.id, job.id)
        made.take()
        assert job.close(card).json["closed"] == "cancelled"
        assert job.respond(used.interaction.id, "failed", reopen=True).status == 200
        assert components_of(made, card)[0].disabled is True
        assert job.wait(card).code == "run_ended"
        assert job.resume(card).code == "run_ended"


def test_a_card_without_components_is_an_open_question(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        answer = job.write("Which one?", kind="card", role="interim", components=[])
        card = answer.json["id"]
        job.wait(card)
        posted = made.say(made.instance.thread(job.thread_id), "the blue one")
        made.take()
        assert job.resume(card, "followup", followup_message_id=str(posted.message.id)).status == 200
        assert job.followup(posted.message.id).status == 200


def test_a_component_that_is_not_there(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        with pytest.raises(Refused) as caught:
            made.instance.use_component(made.ada.id, UUID(card), UUID(card))
        assert caught.value.status == 404


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (CardState.CLOSED, CardState.OPEN),
        (CardState.POSTED, CardState.ANSWERED),
        (CardState.OPEN, CardState.POSTED),
    ],
)
def test_the_table_of_cards_lacks_other_moves(source, target):
    with pytest.raises(IllegalMove):
        check_card_move(source, target)
