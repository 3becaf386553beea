"""The manifests in docs/kubernetes: YAML whose names fit together, under the conditions that the page promises."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.pods import manifests

_PODS = {f"{file} {kind}": (file, spec) for file, kind, spec in manifests.pods()}
_CONTAINERS = {f"{pod} {each['name']}": each for pod, (_, spec) in _PODS.items() for each in manifests.containers(spec)}
_ELSEWHERE = {"models"}  # a claim that whoever has checkpoints has


@pytest.mark.parametrize("file", manifests.FILES)
def test_objects_have_what_the_cluster_asks_for(file: str) -> None:
    for each in manifests.objects(file):
        assert re.fullmatch(r"[a-z0-9-]+", each["metadata"]["name"])
        assert each["apiVersion"] == {"Deployment": "apps/v1", "PersistentVolumeClaim": "v1"}.get(
            each["kind"], "batch/v1"
        )
        if each["kind"] == "Deployment":
            assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(("file", "spec"), _PODS.values(), ids=_PODS)
def test_claims_and_mounts_are_there(file: str, spec: dict[str, Any]) -> None:
    claims = {each["metadata"]["name"] for each in manifests.objects(file) if each["kind"] == "PersistentVolumeClaim"}
    used = {each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each}
    assert used <= claims | _ELSEWHERE
    mounted = [mount["name"] for each in manifests.containers(spec) for mount in each["volumeMounts"]]
    assert set(mounted) == {each["name"] for each in spec["volumes"]}


@pytest.mark.parametrize("container", _CONTAINERS.values(), ids=_CONTAINERS)
def test_no_container_has_rights_or_a_root_to_write_to(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables.get("HOME") in {None, *(mount["mountPath"] for mount in container["volumeMounts"])}
    for name in ("COLDSNAP_STORE", "COLDSNAP_STATE_DIR", "COLDSNAP_ARTIFACT"):
        if name in variables:
            assert any(variables[name].startswith(mount["mountPath"] + "/") for mount in container["volumeMounts"])


def test_writer_and_reader_are_given_the_same() -> None:
    """What decides on the artifact's identity has to be equal."""
    (writer,) = [each for each in _CONTAINERS.values() if each["name"] == "capture"]
    (engine,) = [json.loads(each["value"]) for each in writer["env"] if each["name"] == "ENGINE"]
    readers = [each for each in _CONTAINERS.values() if each["name"] == "serve"]
    for reader in readers:
        assert f"--max-model-len={engine['max_model_len']}" in reader["args"]
        assert f"--load-format={engine['load_format']}" in reader["args"]
        assert reader["image"] == writer["image"]
        for variable in reader["env"]:
            assert variable["name"] != "VLLM_PLUGINS" or variable in writer["env"]
    assert len(readers) == 2
