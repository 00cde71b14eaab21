"""A file's bytes, whole or a range (RFC 9110, section 14)."""

import asyncio
import json

import pytest

from bothy_hermes.local_files import file_response

DATA = bytes(range(200))


def read(response):
    async def collect():
        return b"".join([chunk async for chunk in response.stream])

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("wanted", "status", "first", "last"),
    [
        (None, 200, 0, 199),
        ("bytes=0-", 206, 0, 199),
        ("bytes=10-19", 206, 10, 19),
        ("bytes=190-999", 206, 190, 199),
        ("bytes=-5", 206, 195, 199),
        ("bytes=-999", 206, 0, 199),
        ("bytes=-", 200, 0, 199),
        ("bytes=1-2,4-5", 200, 0, 199),
        ("lines=1-2", 200, 0, 199),
        ("bytes=20-10", 200, 0, 199),
    ],
)
def test_ranges(tmp_path, wanted, status, first, last):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    response = file_response(path, len(DATA), "text/plain", wanted)
    assert response.status == status
    assert response.headers["Content-Length"] == str(last - first + 1)
    assert response.headers.get("Content-Range") == (f"bytes {first}-{last}/200" if status == 206 else None)
    assert read(response) == DATA[first : last + 1]


@pytest.mark.parametrize("wanted", ["bytes=200-", "bytes=200-300", "bytes=-0"])
def test_a_range_with_nothing_in_it(tmp_path, wanted):
    response = file_response(tmp_path / "file", 200, "text/plain", wanted)
    assert (response.status, response.headers["Content-Range"]) == (416, "bytes */200")
    assert response.stream is None
    assert json.loads(response.body)["code"] == "validation_failed"


def test_an_empty_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    response = file_response(path, 0, "text/plain", None)
    assert (response.status, response.headers["Content-Length"], read(response)) == (200, "0", b"")
    assert file_response(path, 0, "text/plain", "bytes=0-").status == 416
