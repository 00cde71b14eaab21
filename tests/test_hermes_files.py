"""Files that Hermes sends: named in the answer of their turn, and carried nowhere."""

from functools import partial

import pytest

from tests.fakes.platform_kit import CHANNEL, METADATA, Stage, at_work, play


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """Makes stages."""
    return partial(Stage, monkeypatch, tmp_path)


class TestFiles:
    """Version 1 carries none out."""

    def test_links_to_images_stay_in_the_text(self, stage):
        """Hermes would cut them out and send a file that nobody gets."""
        text = "See ![a](https://x/a.png)"
        assert stage().open().extract_images(text) == ([], text)

    @pytest.mark.parametrize(
        "name",
        [
            "send_image",
            "send_animation",
            "send_image_file",
            "send_voice",
            "send_video",
            "send_document",
        ],
    )
    def test_a_file_of_a_turn_is_taken_and_counted(self, stage, name):
        """As a success: a failure would be explained to people by Hermes."""

        async def scene():
            async with at_work(stage()) as (platform, _):
                result = await getattr(platform, name)(str(CHANNEL), "/tmp/x.pdf", metadata=METADATA)
                assert result.success is True
                assert platform._bothy.threads.dropped == {"file": 1}

        play(scene())

    @pytest.mark.parametrize("name", ["send_document", "send_image", "send_video"])
    def test_a_file_for_nobody_was_not_delivered(self, stage, name):
        """Whoever counts on it is told so."""

        async def scene():
            platform = await stage().connected()
            result = await getattr(platform, name)("elsewhere", "/tmp/x.pdf", metadata=METADATA)
            assert result.success is False
            await platform.disconnect()

        play(scene())

    def test_a_spoken_answer_is_dropped(self, stage):
        """Its text is sent as well."""

        async def scene():
            platform = await stage().connected()
            assert (await platform.play_tts("c", "/tmp/x.ogg")).success is True
            assert platform._bothy.threads.dropped == {"file": 1}
            await platform.disconnect()

        play(scene())
