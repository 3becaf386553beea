"""What the manifests run beside the engine, in pods as the manifests have them, and what volumes do to artifacts there."""

from __future__ import annotations

import contextlib
import copy
import os
import pathlib
import stat
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pods import manifests
from tests.pods.pod import Cluster, Pod, apply_fs_group, children_of, end, listing

_USER = _GROUP = 1000660000
_DAY_S = 86_400
_LIMIT_S = 30
_CAPTURE = """
import sys
import numpy
import coldsnap
tensors = {"w": numpy.full(70_000, int(sys.argv[2]), numpy.uint8)}
coldsnap.capture(tensors, store="/store/coldsnap", identity={"model": sys.argv[1]}, backend="auto", replace=True)
"""
# Both say that they hold what they hold, and go on until they are ended.
_KEEP_OPEN = """
import sys
import time
import coldsnap
with coldsnap.Store("/store/coldsnap").open({"model": sys.argv[1]}):
    print("held", flush=True)
    time.sleep(600)
"""
_KEEP_BUILDING = """
import sys
import time
import coldsnap
from coldsnap.values import canonical, digest_of
store = coldsnap.Store("/store/coldsnap")
held = store.create_incoming(digest_of(canonical({"model": sys.argv[1]}, "identity")))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as unwind:
        yield Cluster(tmp_path, unwind)


def shared(cluster: Cluster, **security: Any) -> Pod:
    """A pod of the Deployment over a shared store."""
    spec = copy.deepcopy(manifests.pod("shared.yaml", "Deployment"))
    spec["securityContext"] |= security
    return cluster.pod(spec)


def captured(pod: Pod, model: str = "a", value: int = 0) -> None:
    """Capture into the shared store, as the container that serves would."""
    done = pod.run("serve", command=["python3", "-c", _CAPTURE, model, str(value)])
    assert done.status == 0, done.output


def artifact(cluster: Cluster) -> pathlib.Path:
    """The only artifact in the shared store."""
    (found,) = cluster.claim("coldsnap-store").glob("coldsnap/*/*/artifact.json")
    return found.parent


def coldsnap(pod: Pod, *words: str) -> tuple[int, str]:
    """A command of coldsnap in the container that serves."""
    done = pod.run("serve", command=["coldsnap", *words])
    return done.status, done.output


@contextlib.contextmanager
def holding(pod: Pod, code: str, model: str) -> Iterator[None]:
    """A container that holds something while the block lasts."""
    with pod.running("serve", command=["python3", "-c", code, model], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield


def packed(cluster: Cluster) -> Pod:
    """The writer's pod once it is over, with a capture of ours in place of the engine's."""
    job = cluster.pod(manifests.pod("writer.yaml", "Job"))
    done = job.run("capture", command=["python3", "-c", _CAPTURE, "a", "1"])
    assert done.status == 0, done.output
    done = job.run("pack")
    assert (done.status, done.output.count(": intact, "), done.output.count("packed ")) == (0, 1, 1), done.output
    return job


def reader(cluster: Cluster) -> tuple[Pod, str]:
    """A pod of the reader, over an image of what a writer packed, and where the artifact is in it."""
    packed(cluster)
    folder = cluster.made("weights/artifact", 0o755)
    subprocess.run(["tar", "-C", folder, "-xf", cluster.claims["coldsnap-packed"] / "artifact.tar"], check=True)
    cluster.images["registry.example/example-weights:1"] = folder.parent
    (root,) = folder.iterdir()
    return cluster.pod(manifests.pod("reader.yaml", "Deployment")), f"/weights/artifact/{root.name}"


def test_the_writer_packs_what_it_captured_and_replaces_no_file(cluster: Cluster) -> None:
    job = packed(cluster)
    tar = cluster.claims["coldsnap-packed"] / "artifact.tar"
    assert tar.stat().st_uid == _USER
    before = listing(tar.parent)
    done = job.run("pack")
    assert done.status != 0
    assert "is there already" in done.output
    assert listing(tar.parent) == before


def test_an_artifact_in_an_image_is_admitted_and_stays_as_it_is(cluster: Cluster) -> None:
    pod, path = reader(cluster)
    before = listing(cluster.folder / "weights")
    status, output = coldsnap(pod, "verify", "--admit", path)
    assert status == 0, output
    status, output = coldsnap(pod, "inspect", path)
    assert (status, "trust      admitted" in output) == (0, True), output
    assert listing(cluster.folder / "weights") == before
    assert stat.S_IMODE((pod.volumes["state"] / "coldsnap" / "trust").stat().st_mode) & 0o777 == 0o700


def test_metrics_tell_of_the_container_beside(cluster: Cluster) -> None:
    pod, path = reader(cluster)
    request = '{"format": 1, "operation": "verify", "path": "' + path + '"}'
    done = pod.run("serve", command=["sh", "-c", f"echo '{request}' | coldsnap request -"])
    assert done.status == 0, done.output
    with pod.running("metrics") as process:
        text = awaited(pod.volumes["metrics"] / "coldsnap.prom")
        until_it_rests(process)
        assert end(process) == 0
    assert 'coldsnap_last_ok{operation="verify"} 1\n' in text
    assert "coldsnap_quarantined_artifacts 0\n" in text


def until_it_rests(process: subprocess.Popen[bytes]) -> None:
    """Wait until a container's shell is between two rounds of its loop."""
    end = time.monotonic() + _LIMIT_S
    while "sleep" not in [name_of(each) for child in children_of(process.pid) for each in children_of(child)]:
        assert time.monotonic() < end, "the shell did not come to its sleep"
        time.sleep(0.02)


def name_of(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def awaited(path: pathlib.Path) -> str:
    """The text of a file that another process is about to write."""
    end = time.monotonic() + _LIMIT_S
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


def test_the_collection_takes_what_is_old_and_neither_current_nor_open(cluster: Cluster) -> None:
    pod = shared(cluster)
    for model, value in (("a", 1), ("a", 2), ("b", 1)):
        captured(pod, model, value)
    every = list(cluster.claims["coldsnap-store"].glob("coldsnap/*/*/artifact.json"))
    for description in every:
        os.utime(description.parent, (time.time() - 31 * _DAY_S,) * 2)
    with holding(shared(cluster), _KEEP_OPEN, "a"):
        captured(pod, "a", 3)  # what is open is not current any more
        done = cluster.pod(manifests.pod("shared.yaml", "CronJob")).run("gc")
    assert done.status == 0, done.output
    assert "1 artifacts removed" in done.output
    assert "\n3 artifacts, " in done.output  # the open one, and a current one of each model
    assert sum(path.exists() for path in every) == 2


def test_two_pods_do_not_capture_the_same_at_once(cluster: Cluster) -> None:
    with holding(shared(cluster), _KEEP_BUILDING, "a"):
        done = shared(cluster).run("serve", command=["python3", "-c", _CAPTURE, "a", "1"])
        captured(shared(cluster), "b")
    assert done.status != 0
    assert "PolicyRefusedError" in done.output
    assert "another capture is building there" in done.output
    captured(shared(cluster), "a")


def test_a_pod_of_another_user_cannot_write_and_can_read(cluster: Cluster) -> None:
    captured(shared(cluster))
    other = shared(cluster, runAsUser=_USER + 10_000)
    done = other.run("serve", command=["python3", "-c", _CAPTURE, "b", "1"])
    assert done.status != 0
    assert "lock store /store/coldsnap: Permission denied; " in done.output
    assert "let this user write to it" in done.output
    assert coldsnap(other, "store", "verify")[0] == 0


def test_modes_of_a_group_are_accepted_where_it_is_named(cluster: Cluster) -> None:
    """A kubelet that goes through the volume at each start gives the group rights, and changes ctime."""
    captured(shared(cluster))
    path = "/store/coldsnap" + str(artifact(cluster)).partition("/claim-coldsnap-store/coldsnap")[2]
    apply_fs_group(cluster.claims["coldsnap-store"], _GROUP, "Always")
    assert stat.S_IMODE(artifact(cluster).stat().st_mode) == 0o2775
    pod = shared(cluster)  # OnRootMismatch: nothing more happens
    status, output = coldsnap(pod, "verify", "--admit", path)
    assert status != 0
    assert f"group {_GROUP} may write to its" in output
    assert f"COLDSNAP_TRUST_GROUP={_GROUP}" in output

    named = ["env", f"COLDSNAP_TRUST_GROUP={_GROUP}", "coldsnap"]
    done = pod.run("serve", command=[*named, "verify", "--admit", path])
    assert done.status == 0, done.output
    for policy, trust in (("OnRootMismatch", "admitted"), ("Always", "not_admitted")):
        apply_fs_group(cluster.claims["coldsnap-store"], _GROUP, policy)
        done = pod.run("serve", command=[*named, "inspect", path])
        assert f"trust      {trust}" in done.output, done.output
    assert "ctime_ns is" in done.output
    assert coldsnap(pod, "verify", path)[0] == 0


def test_state_on_a_volume_of_a_group_is_refused(cluster: Cluster) -> None:
    captured(shared(cluster))
    path = "/store/coldsnap" + str(artifact(cluster)).partition("/claim-coldsnap-store/coldsnap")[2]
    words = ["env", "COLDSNAP_STATE_DIR=/store/state", "coldsnap", "verify", "--admit", path]
    done = shared(cluster).run("serve", command=words)
    assert done.status == 0, done.output
    apply_fs_group(cluster.claims["coldsnap-store"], _GROUP, "Always")
    done = shared(cluster).run("serve", command=[*words[:2], f"COLDSNAP_TRUST_GROUP={_GROUP}", *words[2:]])
    assert done.status != 0
    assert "others may write to it (mode 2770)" in done.output


@pytest.mark.parametrize("home", ["/", "/tmp"])
def test_the_default_store_is_refused_where_it_would_be_gone(cluster: Cluster, home: str) -> None:
    packed(cluster)
    job = cluster.pod(manifests.pod("writer.yaml", "Job"), environment={"COLDSNAP_STORE": None, "HOME": home})
    done = job.run("pack", command=["coldsnap", "store", "unpack", "/packed/artifact.tar"])
    assert done.status != 0
    assert "would be gone with the container; name a store: COLDSNAP_STORE=DIR" in done.output
    assert listing(job.volumes["tmp"], job.upper(1)) == []


def test_capabilities_are_told_in_a_container(cluster: Cluster) -> None:
    status, output = coldsnap(shared(cluster), "capabilities", "--path", "/store")
    assert status == 0
    assert "direct I/O" in output
