"""A gateway that dies and comes back."""


def test_a_run_that_a_crash_left_over_is_ended_at_the_next_start(world):
    """Nobody waits for a turn that no process has any more, and the thread goes on."""
    person = world.person()
    thread_id = world.new_thread()
    run_id = person.post(thread_id, "sleep 60")
    world.wait_for(run_id, thread_id, states=("running",))
    world.gateway.kill()
    world.start()
    left = world.wait_for(run_id, thread_id)
    assert (left.state, left.run["reason"]) == ("failed", "adapter_restarted")
    said = world.say("repeat back again", thread_id)
    assert said.state == "completed"
    assert said.answer.endswith("back again")


def test_a_message_that_came_while_the_gateway_was_away_is_answered_once(world):
    """It waits at the server and is delivered when the agent is back."""
    thread_id = world.new_thread()
    world.gateway.stop()
    run_id = world.person().post(thread_id, "repeat while you were away")
    world.start()
    said = world.wait_for(run_id, thread_id)
    assert said.state == "completed"
    assert said.texts("answer") == ["[script] while you were away"]
    assert len(world.asked("while you were away")) == 1
