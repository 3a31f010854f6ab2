"""Headless Chromium, controlled over the DevTools pipe: needs no driver program, web socket or package."""

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)


def find_chromium():
    return next((program for name in PROGRAMS if (program := shutil.which(name))), None)


class Chromium:
    """One page. `console` collects its errors and warnings, `requests` the addresses it loads."""

    def __init__(self, program, profile: Path):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_browser, from_browser)]  # clear of 3 and 4
        command = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]}'  # the two that --remote-debugging-pipe speaks through
        arguments = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *arguments],
            pass_fds=high,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
        for end in (to_browser, from_browser, *high):
            os.close(end)
        self._buffer, self._count, self._session = b"", 0, None
        self.console, self.requests, self._loaded = [], [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(10)

    def call(self, method, **params):
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self):
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 20)
            assert piece, "Chromium has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event, params):
        if event == "Runtime.exceptionThrown":
            self.console.append(params["exceptionDetails"]["exception"].get("description", "exception"))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.console.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.console.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path):
        """Opens a file and waits until it has loaded; messages of earlier pages are discarded."""
        self.console, self.requests, self._loaded = [], [], False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._receive()
        self.settle()

    def settle(self):
        """Waits for two frames, so that everything is drawn."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60))))"
        )

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script, seconds=5.0):
        """The script's value once it is true; fails after `seconds`."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, f"still not: {script}"
            time.sleep(0.05)
        return value

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, start, end):
        self.point(*start)
        for kind, (x, y), held in (("mousePressed", start, 1), ("mouseMoved", end, 1), ("mouseReleased", end, 0)):
            button = {"button": "left", "buttons": held, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)
            self.settle()

    def resize(self, width, height, phone=False):
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.settle()

    def prefer(self, scheme):
        """Sets the colour scheme of the system, 'light' or 'dark'."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def screenshot(self, path: Path, whole=True):
        self.settle()
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))["data"]
        path.write_bytes(base64.b64decode(data))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
