"""A browser that a test drives: the machine's Chromium over its own debugging protocol."""

import itertools
import json
import shutil
import subprocess
import time
from contextlib import ExitStack, suppress

from websockets.sync.client import connect

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
SECONDS = 20


class Browser:
    """One window with one page. Use it as a context manager.

    Attributes:
        trouble: Everything that a page should not do: dialogs, exceptions, errors on the console.
    """

    def __init__(self, directory):
        self._directory = directory
        self._numbers = itertools.count(1)
        self._open = ExitStack()
        self._session = None
        self.trouble = []

    def __enter__(self):
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={self._directory}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection = connect(self._address(), max_size=None, proxy=None)
            self._socket = self._open.enter_context(connection)
            target = self.command("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.command(f"{domain}.enable")
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_):
        with suppress(Exception):
            self._session = None
            self.command("Browser.close")
        self._open.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _address(self):
        port_file = self._directory / "DevToolsActivePort"
        for _ in range(SECONDS * 20):
            if port_file.exists() and len(lines := port_file.read_text().split()) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            assert self._process.poll() is None, "the browser ended"
            time.sleep(0.05)
        raise AssertionError("the browser did not start")

    def command(self, method, **parameters):
        """Send one command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            found = json.loads(self._socket.recv(timeout=SECONDS))
            if found.get("id") == number:
                assert "error" not in found, (method, found)
                return found["result"]
            self._notice(found)

    def _notice(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.javascriptDialogOpening":
            self.trouble.append(f"dialog: {parameters['message']}")
        elif method == "Runtime.exceptionThrown":
            self.trouble.append(f"exception: {parameters['exceptionDetails']['text']}")
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.trouble.append(f"{parameters['entry']['source']}: {parameters['entry']['text']}")

    def open(self, url):
        """Go to an address."""
        self.command("Page.navigate", url=url)

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        found = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression):
        """Wait until a JavaScript expression counts as true."""
        for _ in range(SECONDS * 20):
            with suppress(AssertionError):  # the page may be between two documents
                if self.evaluate(f"Boolean({expression})"):
                    return
            time.sleep(0.05)
        raise AssertionError(f"it did not come to that: {expression}")

    def type(self, text):
        """Type a text where the focus is."""
        self.command("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        """Press a key: Enter, Tab, Space."""
        codes = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Space": (" ", 32, " ")}
        name, code, text = codes[key]
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def text(self, selector):
        """Return what a reader sees of an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
