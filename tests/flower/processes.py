"""A real Flower federation on loopback: a SuperLink and SuperNodes as processes, with TLS and node authentication."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import fedtrue

BIN = Path(sys.executable).parent
REPOSITORY = Path(fedtrue.__file__).parents[1]
SECONDS = 120  # after which a process that does not do what it should is a failure


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def quietly(*command) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=SECONDS)


def make_certificates(folder: Path) -> None:
    """A certificate authority of our own, and the SuperLink's certificate for 127.0.0.1."""
    folder.mkdir()
    ca, key, request = folder / "ca.crt", folder / "server.key", folder / "server.csr"
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    new = ("openssl", "req", "-nodes", "-newkey", "rsa:2048")
    quietly(*new, "-x509", "-days", 2, "-subj", "/CN=test", "-keyout", folder / "ca.key", "-out", ca)
    quietly(*new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    signed = ("-CA", ca, "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", 2, "-extfile", names)
    quietly("openssl", "x509", "-req", "-in", request, *signed, "-out", folder / "server.crt")


def make_key(path: Path) -> None:
    """A key pair of a SuperNode."""
    quietly("ssh-keygen", "-t", "ecdsa", "-b", "384", "-N", "", "-q", "-f", path)


class RealFederation:
    """Starts the processes in `folder` and ends all of them, whatever happens."""

    def __init__(self, folder: Path, simulation: bool = False):
        self.folder, self.port, self.simulation = folder, free_port(), simulation
        self.processes: dict[str, subprocess.Popen] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def __enter__(self) -> "RealFederation":
        certificates = self.folder / "certificates"
        make_certificates(certificates)
        (self.folder / "home").mkdir()
        trust = "insecure = true" if self.simulation else f'root-certificates = "{certificates / "ca.crt"}"'
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        tls = ("--ssl-certfile", certificates / "server.crt", "--ssl-keyfile", certificates / "server.key")
        tls += ("--ssl-ca-certfile", certificates / "ca.crt", "--enable-supernode-auth")
        kind = ("--insecure", "--simulation") if self.simulation else tls
        address = ("--host", "127.0.0.1", "--port", self.port)
        self.start("superlink", "flower-superlink", *kind, "--disable-runtime-dependency-installation", *address)
        self.wait_until(self.is_up, "the SuperLink listens")
        return self

    def __exit__(self, *error) -> None:
        for name in list(self.processes):
            self.kill(name)
        for process in with_environment(f"FLWR_HOME={self.folder / 'home'}"):  # children of processes that have ended
            kill(process)

    def start(self, name: str, program: str, *arguments) -> None:
        """In a process group of its own, so that its children end with it."""
        command = [str(BIN / program), *map(str, arguments)]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """The process and all that it has started."""
        process = self.processes.pop(name)
        for each in (process.pid, *descendants(process.pid)):
            kill(each)
        process.wait(10)

    def start_node(self, client: int, *, register: bool = True, tls: bool = True) -> None:
        """A SuperNode with a key of its own, which the `flwr` command registers; without TLS it can have none."""
        name, key = f"node-{client}", self.folder / f"node-{client}"
        trust = ("--insecure", "--max-retries", 1)
        if tls:
            make_key(key)
            certificate = self.folder / "certificates" / "ca.crt"
            trust = ("--root-certificates", certificate, "--auth-supernode-private-key", key)
            if register:
                self.flwr("supernode", "register", f"{key}.pub", "test")
        config = ("--node-config", f"partition-id={client}", "--host", "127.0.0.1", "--port", free_port())
        self.start(name, "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", *trust, *config)

    def flwr(self, *arguments) -> str:
        command = [str(BIN / "flwr"), *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, app: Path, *, more=(), **config) -> None:
        """Submits a run; it does not wait for its end."""
        values = [f"{name.replace('_', '-')}={_toml(value)}" for name, value in config.items()]
        self.flwr("run", app, "test", *[part for value in values for part in ("--run-config", value)], *more)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_until(self, condition, what: str, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = {name: self.log(name)[-3000:] for name in self.processes}
                raise AssertionError(
                    f"{what}: not after {seconds} s\n" + "\n".join(f"== {n}\n{t}" for n, t in logs.items())
                )
            time.sleep(0.2)

    def server_process(self) -> int | None:
        """The process of the ServerApp."""
        return next(
            (p for p in descendants(self.processes["superlink"].pid) if "flwr-serverapp" in command_of(p)), None
        )


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def command_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def with_environment(entry: str) -> list[int]:
    """The processes that have this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if entry.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def descendants(process: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _toml(value) -> str:
    return (
        f"'{value}'"
        if isinstance(value, str | Path)
        else str(value).lower()
        if isinstance(value, bool)
        else repr(value)
    )


needs_tools = [tool for tool in ("openssl", "ssh-keygen") if shutil.which(tool) is None]
