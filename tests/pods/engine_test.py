"""The engine in pods: what the manifests start serves, and what a start may not write down it says in one line."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import json
import pathlib
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.engines import models
from tests.engines.harness import PROMPTS, Server, free_port
from tests.pods import manifests
from tests.pods.pod import Cluster, Pod, listing

# What a CPU and a tiny model need, and no manifest has.
_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
_LIMIT_S = 240
_UNSET = {"COLDSNAP_STATE_DIR": None, "COLDSNAP_STORE": None, "COLDSNAP_STORE_MAX_BYTES": None, "HOME": None}


@dataclasses.dataclass(frozen=True)
class Seen:
    """One container that served, and then ended.

    Attributes:
        pod: Its pod.
        outputs: For each prompt, as in `tests.engines.harness.Answer`.
        log: What it wrote by then.
        before: All that was in the pod's volumes when it was started.
    """

    pod: Pod
    outputs: list[tuple[tuple[int, ...], float]]
    log: str
    before: list[str]

    def line(self, part: str) -> str:
        """The only line of the log that contains ``part``."""
        (found,) = [line for line in self.log.splitlines() if part in line]
        return found


def _served(cluster: Cluster, pod: Pod, model: str) -> Seen:
    """Start the container ``serve``, ask it, and end it."""
    port, before = free_port(), listing(*pod.volumes.values())
    folder = cluster.folder / f"served-{port}"
    folder.mkdir()
    more = ("--enforce-eager", "--host=127.0.0.1", f"--port={port}")
    with (folder / "log").open("wb") as log, pod.running("serve", *more, stdout=log, stderr=log) as process:
        server = Server(port, model, folder)
        assert server.await_ready(process) == [200], server.log[-4000:]
        return Seen(pod, [server.complete(prompt) for prompt in PROMPTS], server.log, before)


def _changed(
    spec: dict[str, Any], *, security: Mapping[str, bool] | None = None, volumes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A pod's ``spec`` with another securityContext of its first container, and with other volumes."""
    found = copy.deepcopy(spec)
    found["containers"][0]["securityContext"] |= security or {}
    for volume in found["volumes"]:
        if volume["name"] in (volumes or {}):
            del volume[next(key for key in volume if key != "name")]
            volume |= volumes[volume["name"]]
    return found


def _write(spec: dict[str, Any], cluster: Cluster) -> pathlib.Path:
    """Run the writer's Job; the packed artifact."""
    found = copy.deepcopy(spec)
    for variable in found["initContainers"][0]["env"]:
        if variable["name"] == "ENGINE":
            variable["value"] = json.dumps(json.loads(variable["value"]) | {"enforce_eager": True})
    job = cluster.pod(found, environment=_VARIABLES)
    for container in ("capture", "pack"):
        done = job.run(container, limit_s=_LIMIT_S)
        assert done.status == 0, done.output[-4000:]
    return cluster.claims["coldsnap-packed"] / "artifact.tar"


def _built(packed: pathlib.Path, model: pathlib.Path, image: pathlib.Path) -> str:
    """Do what the Containerfile says; the artifact's root."""
    text = (manifests.FOLDER / "Containerfile").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line.startswith("ADD ")]
    for _, *sources, target in lines:
        folder = image / target.strip("/")
        folder.mkdir(parents=True)
        for name in sources:
            if name.endswith(".tar"):
                subprocess.run(["tar", "-C", folder, "-xf", packed], check=True)
            elif (model / name).exists():  # a tiny model has no generation_config.json
                (folder / name).write_bytes((model / name).read_bytes())
    (root,) = (image / "artifact").iterdir()
    return root.name


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    """The pods of all tests below by name, two at a time, over what one writer captured."""
    with contextlib.ExitStack() as unwind:
        cluster = Cluster(tmp_path_factory.mktemp("pods"), unwind)
        model = models.make("dense", cluster.claim("models") / "example")
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))

        weights = cluster.folder / "weights"
        root = _built(_write(manifests.pod("writer.yaml", "Job"), cluster), model, weights)
        cluster.images["registry.example/example-weights:1"] = weights
        pods = _pods(cluster, f"/weights/artifact/{root}")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = {name: pool.submit(_served, cluster, pod, model) for name, (pod, model) in pods.items()}
            yield {name: each.result() for name, each in found.items()}


def _pods(cluster: Cluster, artifact: str) -> dict[str, tuple[Pod, str]]:
    """By name: the pods, and what their models are called."""
    image, shared = "/weights/model", "/models/example"
    reader = manifests.pod("reader.yaml", "Deployment")
    store = manifests.pod("shared.yaml", "Deployment")
    on_overlay = _changed(store, security={"readOnlyRootFilesystem": False})
    empty = _changed(store, volumes={"store": {"emptyDir": {}}})
    small = _changed(store, volumes={"store": {"emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}})

    def pod(spec: dict[str, Any], **environment: str | None) -> Pod:
        return cluster.pod(spec, environment=_VARIABLES | environment)

    return {
        "reader": (pod(reader, COLDSNAP_ARTIFACT=artifact), image),
        "shared": (pod(store), shared),
        "reader without a place": (pod(reader, **_UNSET, COLDSNAP_ARTIFACT=artifact), image),
        "no place": (pod(empty, **_UNSET), shared),
        "home on an overlay": (pod(on_overlay, **_UNSET | {"HOME": "/app/home"}), shared),
        "small": (pod(small), shared),
    }


def _written(seen: Seen) -> list[str]:
    """What came into being, or changed, but for what is the engine's in its scratch folders."""
    volumes = seen.pod.volumes
    own = listing(*(volumes[name] for name in volumes.keys() - {"tmp", "shm"}), seen.pod.upper(1))
    scratch = [
        line
        for folder in (volumes["tmp"], volumes["shm"])
        for line in listing(folder)
        if "coldsnap" in line.removeprefix(str(folder))  # where the test's own folders are says nothing
    ]
    return [line for line in [*own, *scratch] if line not in seen.before]


def test_the_reader_serves_from_an_image_without_a_checkpoint(seen: dict[str, Seen]) -> None:
    reader = seen["reader"]
    reader.line("coldsnap: restored ")
    assert reader.outputs == seen["no place"].outputs
    state = str(reader.pod.volumes["state"])
    assert _written(reader)
    assert all(line.startswith(state) for line in _written(reader))
    told = reader.pod.run("metrics", command=["coldsnap", "metrics"]).output
    assert 'coldsnap_last_ok{operation="hydrate"} 1\n' in told


def test_a_shared_store_is_filled_before_the_first_replica_is_ready(seen: dict[str, Seen]) -> None:
    first = seen["shared"]
    first.line("coldsnap: captured ")
    assert first.outputs == seen["no place"].outputs
    assert len(list(first.pod.volumes["store"].glob("coldsnap/*/*/artifact.json"))) == 1


def test_a_reader_without_a_place_to_write_restores_and_writes_nothing(seen: dict[str, Seen]) -> None:
    reader = seen["reader without a place"]
    reader.line("coldsnap: ")
    reader.line("coldsnap: restored ")
    assert "the profile is ignored" not in reader.log
    assert reader.outputs == seen["no place"].outputs
    assert _written(reader) == []


def test_without_home_and_store_a_start_says_so_once_and_writes_nothing(seen: dict[str, Seen]) -> None:
    start = seen["no place"]
    line = start.line("coldsnap: ")
    assert "loading normally: find the default store: HOME is not set" in line
    assert "no home folder for user 1000660000; name a store: COLDSNAP_STORE=DIR" in line
    assert _written(start) == []


def test_a_home_on_an_overlay_gets_no_artifact(seen: dict[str, Seen]) -> None:
    start = seen["home on an overlay"]
    line = start.line("coldsnap: not captured: ")
    assert "capture into the default store /app/home/.cache/coldsnap: " in line
    assert "is on overlay, and would be gone with the container; name a store" in line
    assert start.outputs == seen["no place"].outputs
    written = _written(start)
    assert any("/app/home/" in each for each in written)  # the engine's cache, so something could be written
    assert not [each for each in written if "/.cache/coldsnap" in each]


def test_a_mount_that_is_too_small_gets_nothing(seen: dict[str, Seen]) -> None:
    start = seen["small"]
    line = start.line("coldsnap: not captured: ")
    assert "bytes for weights.safetensors (the file system has 4194304 bytes available): No space left" in line
    assert start.outputs == seen["no place"].outputs
    store = start.pod.volumes["store"]
    assert [path for path in store.rglob("*") if path.is_file() and path.stat().st_size] == []
    assert not list(store.rglob("shard-*"))
