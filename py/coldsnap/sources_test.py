"""Roles and attrs stand in the rows of their tensors, and are of no other."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import coldsnap
from coldsnap.sources import sources_of


def test_roles_and_attrs_come_back_from_the_artifact(tmp_path: pathlib.Path) -> None:
    tensors = {"a": np.zeros(3), "b": np.ones(2), "c": np.ones(1)}
    coldsnap.capture(tensors, tmp_path / "a", roles={"b": "buffer"}, attrs={"b": ["z=1", "a=2"], "c": ("k=v",)})
    with coldsnap.open(tmp_path / "a") as artifact:
        assert {name: (artifact[name].role, artifact[name].attrs) for name in artifact} == {
            "a": ("", ()),
            "b": ("buffer", ("a=2", "z=1")),
            "c": ("", ("k=v",)),
        }


@pytest.mark.parametrize("about", [{"roles": {"x": "buffer"}}, {"attrs": {"x": ["k=v"]}}])
def test_a_role_of_no_tensor_is_refused(about: dict[str, dict[str, object]]) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match="'x' has a role or attrs, and is none of them"):
        sources_of({"a": np.zeros(3)}, **about)  # type: ignore[arg-type]
