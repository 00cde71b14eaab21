"""Several threads, and several messages in one."""

from tests.live.kit import last_user_text

SECRETS = ("plum-7141", "quince-2718")


def sessions_of(world, thread_id):
    """The Hermes session that each run of a thread reported."""
    return world.server.instance.thread(thread_id)


def test_two_threads_at_once_do_not_mix(world):
    """Each thread's answer, steps and model requests hold its own word and never the other's."""
    first, second = world.all_at_once(*(f"repeat {secret} and no other" for secret in SECRETS))
    assert (first.state, second.state) == ("completed", "completed")
    for said, own, other in ((first, *SECRETS), (second, *reversed(SECRETS))):
        assert own in said.answer
        assert other not in str(said.views)
        assert other not in str(said.messages)
        requests = world.asked(own)
        assert requests
        assert all(other not in str(body) for body in requests)


def test_a_second_message_continues_the_conversation(world):
    """The second turn of a thread knows the first: Hermes went on with the same session."""
    first = world.say("repeat the code word is heron")
    second = world.say("history", first.thread_id)
    assert second.state == "completed"
    assert "the code word is heron" in second.answer
    assert len(world.asked("history")[-1]["messages"]) > len(world.asked("heron")[0]["messages"])


def test_another_thread_knows_nothing_of_it(world):
    """A new thread is a new conversation."""
    world.say("repeat the code word is magpie")
    said = world.say("history")
    assert "magpie" not in said.answer


def test_a_message_during_a_run_becomes_the_next_run(world):
    """It is not lost and not answered twice: after the running one it has a run of its own."""
    person = world.person()
    thread_id = world.new_thread()
    first = person.post(thread_id, "sleep 4")
    world.wait_for(first, thread_id, states=("running",))
    assert person.post(thread_id, "repeat the second message") in (None, first)
    world.wait_for(first, thread_id)
    later = [view["run"]["id"] for view in person.runs(thread_id) if view["run"]["id"] != first]
    assert len(later) == 1
    said = world.wait_for(later[0], thread_id)
    assert said.state == "completed"
    assert said.answer.endswith("the second message")
    turns = [
        body for body in world.asked("the second message") if "the second message" in last_user_text(body)
    ]
    assert len(turns) == 1


def test_a_stranger_hears_nothing_of_hermes(world):
    """Whoever is not on the server's list gets a run that says so: no model, no greeting, no pairing code."""
    instance = world.server.instance
    eve = instance.add_person("Eve", "member", run_kinds=())
    thread = instance.create_thread(eve.id)
    run_id = instance.post_message(eve.id, thread.id, "repeat I am Eve").run_id
    refused = world.wait_for(str(run_id), str(thread.id))
    assert (refused.state, refused.run["reason"]) == ("failed", "not_allowed")
    assert [one["author"]["kind"] for one in refused.messages] == ["person"]
    assert world.asked("I am Eve") == []
    instance.set_allowed(eve.id, ("operator",))
    thread = instance.create_thread(eve.id)
    run_id = instance.post_message(eve.id, thread.id, "repeat Eve again").run_id
    said = world.wait_for(str(run_id), str(thread.id))
    assert said.texts("answer") == ["[script] Eve again"]
    assert "pairing" not in str(said.messages).lower()
