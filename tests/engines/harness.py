"""Starts of the real engine, each in fresh processes, and what they answered.

    place = harness.Place(tmp_path)
    first, second = place.start(Start(model), Start(model, extra={"coldsnap": {"mode": "auto"}}))

The wheel is unpacked as pip would, so that vLLM finds the entry point as it does at a user's.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from tests.engines import plain_layers
from tests.engines.models import MEDIA

PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [200, 150, 100]]
TOKENS = 12
_LIMIT_S = 240  # of one start; 20 are usual, 60 with others beside it
_AT_ONCE = 2
_IMAGE_SIDE = 56  # pixels; four tokens
_ENTRY_POINTS = """[vllm.general_plugins]
coldsnap_hidden_tensors = tests.engines.hidden_tensors:register
coldsnap_plain_layers = tests.engines.plain_layers:register
"""


@dataclasses.dataclass(frozen=True)
class Start:
    """What one start of the engine is given.

    Attributes:
        model: Folder of the checkpoint.
        load_format: vLLM's ``--load-format``.
        extra: vLLM's ``--model-loader-extra-config``.
        environment: Variables beside those that every start has.
        processes: Whether the engine gets processes of its own, as it has by default; else it runs in the caller's.
        ranks: Tensor parallel size; more than one has processes always.
        plain: Whether linear layers keep ordinary tensors, as on a GPU; `plain_layers`.
        image: Seed of an image that each prompt shows; 0: none.
        engine: More arguments of ``vllm.LLM``.
        steps: What is done with the engine before it ends, as `sleeper` takes it; none: it answers the prompts.
        named: Starts of one name have the same command line; none: each has its own.
    """

    model: pathlib.Path
    load_format: str = "auto"
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    processes: bool = False
    ranks: int = 1
    plain: bool = True
    image: int = 0
    engine: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: tuple[tuple[Any, ...], ...] = ()
    named: str = ""

    def arguments(self) -> dict[str, Any]:
        """Of ``vllm.LLM``."""
        return {
            "enforce_eager": True,
            "load_format": self.load_format,
            "max_model_len": 128,
            "max_num_seqs": 4,
            "model": str(self.model),
            "model_loader_extra_config": dict(self.extra),
            "seed": 0,
            "tensor_parallel_size": self.ranks,
            # By default a package hashes images that nothing else has a use for.
            **({"mm_hasher_algorithm": "sha256"} if self.image else {}),
            **self.engine,
        }

    def order(self) -> dict[str, Any]:
        """What the child is asked."""
        order = {"engine": self.arguments(), "prompts": PROMPTS, "tokens": TOKENS}
        if self.steps:
            order["steps"] = self.steps
        if not self.image:
            return order
        draw, side = random.Random(self.image), range(_IMAGE_SIDE)
        pixels = [[[draw.randrange(256) for _ in "RGB"] for _ in side] for _ in side]
        before = [MEDIA["<|vision_start|>"], MEDIA["<|image_pad|>"], MEDIA["<|vision_end|>"]]
        return {**order, "image": pixels, "prompts": [before + prompt for prompt in PROMPTS]}


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a start did.

    Attributes:
        outputs: For each prompt its token ids and the sum of their log-probabilities; empty after a failure.
        log: What all its processes wrote.
        status: Exit status of the process that asked for the engine; negative: the signal that ended it.
        ready_s: From that process's first import to the engine's readiness.
        receipts: That coldsnap left, in the order of their making.
        steps: What `sleeper` answered to each of the start's steps.
    """

    outputs: list[tuple[tuple[int, ...], float]]
    log: str
    status: int
    ready_s: float
    receipts: list[dict[str, Any]]
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def served(self) -> bool:
        return bool(self.outputs)

    def lines(self, part: str) -> list[str]:
        """The lines of the log that contain ``part``."""
        return [line for line in self.log.splitlines() if part in line]

    def bars(self, name: str) -> list[str]:
        """The states that the progress bar ``name`` showed, from the first to the last."""
        return [shown for shown in self.log.replace("\n", "\r").split("\r") if shown.startswith(f"{name}:")]


class Place:
    """A folder for starts: what they share (state, caches) and what they leave."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.state = folder / "state"
        self._packages = folder / "packages"
        with zipfile.ZipFile(pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["WHEEL"])) as wheel:
            wheel.extractall(self._packages)
        ours = self._packages / "coldsnap_engine_tests-0.dist-info"
        ours.mkdir()
        (ours / "METADATA").write_text("Metadata-Version: 2.1\nName: coldsnap-engine-tests\nVersion: 0\n")
        (ours / "entry_points.txt").write_text(_ENTRY_POINTS)
        self._count = 0

    def start(self, *starts: Start) -> list[Answer]:
        """Run starts beside each other, two at a time; answers in their order. A failed start is an answer, too."""
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._start, starts, [self._next(start.named) for start in starts]))

    def environment(self, start: Start, folder: pathlib.Path) -> dict[str, str]:
        """All variables of a start's processes: nothing of the caller's but where programs are.

        vLLM asks a process of its own what each architecture can do, and remembers it; one cache for all tests of a
        target halves the time of a start.
        """
        root = os.environ["RUNFILES_ROOT"]
        return {
            "COLDSNAP_RECEIPT_DIR": str(folder / "receipts"),
            "COLDSNAP_STATE_DIR": str(self.state),
            "HF_HUB_OFFLINE": "1",
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            plain_layers.VARIABLE: plain_layers.TENSORS if start.plain else "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{self._packages}:{root}",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
            # The sampler would compile itself for log-probabilities, which takes 20 s.
            "TORCH_COMPILE_DISABLE": "1",
            "VLLM_CACHE_ROOT": str(pathlib.Path(os.environ.get("TEST_TMPDIR", self._folder), "vllm-cache")),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if start.processes or start.ranks > 1 else "0",
            "VLLM_NO_USAGE_STATS": "1",
            **start.environment,
        }

    def _next(self, named: str = "") -> pathlib.Path:
        self._count += 1
        folder = self._folder / (named or f"start-{self._count}")
        if named and folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def _start(self, start: Start, folder: pathlib.Path) -> Answer:
        order, answer, log = folder / "order.json", folder / "answer.json", folder / "log"
        order.write_text(json.dumps(start.order()))
        root = os.environ["RUNFILES_ROOT"]
        subject = "tests/engines/sleeper.py" if start.steps else "bench/engines/child.py"
        program = [os.path.join(root, "bench", "engines", "one_start.py"), os.path.join(root, subject)]
        with running([*program, str(order), str(answer)], self.environment(start, folder), log) as process:
            try:
                status = process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                status = -signal.SIGALRM
        found = json.loads(answer.read_text()) if answer.exists() else {"answers": [], "import_s": 0.0, "engine_s": 0.0}
        outputs = [(tuple(each["ids"]), sum(each["logprobs"])) for each in found["answers"]]
        ready_s = found["import_s"] + found["engine_s"]
        steps = found.get("steps", [])
        return Answer(outputs, log.read_text(errors="replace"), status, ready_s, receipts_in(folder), steps)

    @contextlib.contextmanager
    def serving(self, start: Start) -> Iterator[Server]:
        """Run vLLM's HTTP server, from its readiness to the end of the block.

        Raises:
            AssertionError: It ended before it was ready, or took too long; its log's end is in the message.
        """
        with self._server(start) as (server, process):
            statuses = server.await_ready(process)
            assert statuses[-1:] == [200], f"not ready, status {process.poll()}\n{server.log[-4000:]}"
            yield server

    def serve(self, start: Start) -> Served:
        """One round of a loop that starts the server again and again: ask it once it is ready, or see it end."""
        with self._server(start) as (server, process):
            statuses = server.await_ready(process)
            log = server.log
            outputs = [server.complete(prompt) for prompt in PROMPTS] if statuses[-1:] == [200] else []
            return Served(statuses, log, outputs, process.poll())

    @contextlib.contextmanager
    def _server(self, start: Start) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
        folder = self._next()
        port = free_port()
        options = {**start.arguments(), "host": "127.0.0.1", "port": port}
        command = ["-m", "vllm.entrypoints.openai.api_server"]
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            command += [option] if value is True else [option, text]
        with running(command, self.environment(start, folder), folder / "log") as process:
            yield Server(port, str(start.model), folder), process


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Answers(collections.defaultdict[str, list[Answer]]):
    """Answers by the names of starts, in the order of a name's starts: for tests that share them."""

    def __init__(self, place: Place) -> None:
        super().__init__(list)
        self._place = place

    def run(self, **starts: Start) -> None:
        """Run starts beside each other, as `Place.start` does."""
        for name, answer in zip(starts, self._place.start(*starts.values()), strict=True):
            self[name].append(answer)


def receipts_in(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The receipts of a start, whose names begin with their time."""
    return [json.loads(path.read_text()) for path in sorted((folder / "receipts").glob("*.json"))]


@dataclasses.dataclass(frozen=True)
class Served:
    """What somebody saw from outside who started a server.

    Attributes:
        statuses: Of ``/health``, each that came back until the first 200 or the end; empty: nobody ever listened.
        log: What the server had written by then.
        outputs: As in `Answer`; empty where it never was ready.
        status: Its exit status; None where it had not ended.
    """

    statuses: list[int]
    log: str
    outputs: list[tuple[tuple[int, ...], float]]
    status: int | None

    def lines(self, part: str) -> list[str]:
        """The lines of the log that contain ``part``."""
        return [line for line in self.log.splitlines() if part in line]


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that was started."""

    port: int
    model: str
    folder: pathlib.Path

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def await_ready(self, process: subprocess.Popen[bytes]) -> list[int]:
        """Ask ``/health`` until it is 200, the process ended, or the time is up; the HTTP statuses that came back."""
        end, statuses = time.monotonic() + _LIMIT_S, []
        while time.monotonic() < end and process.poll() is None and statuses[-1:] != [200]:
            try:
                with urllib.request.urlopen(self.url("/health"), timeout=5) as answer:
                    statuses.append(answer.status)
            except urllib.error.HTTPError as answer:
                statuses.append(answer.code)
            except OSError:  # nobody listens
                time.sleep(0.05)
        return statuses

    def complete(self, prompt: list[int]) -> tuple[tuple[int, ...], float]:
        """What `Answer.outputs` has for a prompt."""
        asked = {
            "ignore_eos": True,
            "logprobs": 0,
            "max_tokens": TOKENS,
            "model": self.model,
            "prompt": prompt,
            "return_token_ids": True,
            "temperature": 0,
        }
        request = urllib.request.Request(
            self.url("/v1/completions"), json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            choice = json.load(response)["choices"][0]
        return tuple(choice["token_ids"]), sum(choice["logprobs"]["token_logprobs"])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def running(command: list[str], environment: Mapping[str, str], log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process whose children end with it, in a process group of its own."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command], env=dict(environment), stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
