"""A start's settings: extra configuration before environment before default; what is unknown is refused."""

import pathlib

import pytest

from coldsnap import errors
from coldsnap.adapters import configuration

ENVIRON = {"COLDSNAP_MODE": "restore", "COLDSNAP_STORE": "/store/of/environ", "COLDSNAP_ARTIFACT": "/an/artifact"}


def test_the_extra_configuration_wins_over_the_environment() -> None:
    ours = {"mode": "auto", "store": "/store/of/extra", "identity": "manifest"}
    found = configuration.resolve({"coldsnap": ours, "num_threads": 4}, ENVIRON)
    assert (found.mode.value, found.mode.source) == ("auto", "explicit")
    assert (found.store.value, found.store.source) == ("/store/of/extra", "explicit")
    assert (found.artifact.value, found.artifact.source) == ("/an/artifact", "environment")
    assert (found.identity.value, found.identity.source) == ("manifest", "explicit")
    assert (found.when.value, found.when.source) == ("load", "default")


def test_defaults_and_what_a_mode_may_do(tmp_path: pathlib.Path) -> None:
    found = configuration.resolve({}, {})
    assert [found.mode.value, found.store.value, found.artifact.value] == ["auto", None, None]
    assert (found.may_restore, found.may_capture, found.must) == (True, True, False)
    place = found.place({"XDG_CACHE_HOME": str(tmp_path)})
    assert (place.value, place.source) == (str(tmp_path / "coldsnap"), "default")
    may = {
        mode: (found.may_restore, found.may_capture, found.must)
        for mode in ("restore", "capture", "off")
        for found in [configuration.resolve({"coldsnap": {"mode": mode}}, {})]
    }
    assert may == {"restore": (True, False, True), "capture": (False, True, True), "off": (False, False, False)}
    assert not configuration.resolve({}, {"COLDSNAP_ARTIFACT": "/a"}).may_capture
    assert (found.control.value, found.capture_rate.value) == (None, 256 << 20)
    asked = configuration.resolve({"coldsnap": {"when": "asked"}}, {"COLDSNAP_CONTROL": "/run/engine/control"})
    assert (asked.when.value, asked.control.value) == ("asked", "/run/engine/control")


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"mod": "auto"}, ["'mod' is unknown", "mode, store, artifact, when, identity, control, capture_rate"]),
        ({"mode": "fast"}, ["'fast' is unknown", "auto, capture, restore, off"]),
        ({"store": "relative"}, ["'relative' is no absolute path"]),
        ({"when": "later"}, ["'later' is unknown", "load, ready, asked"]),
        ({"when": "asked"}, ["it is asked", "no control socket is named"]),
        ({"when": "asked", "control": "/a/socket", "mode": "capture"}, ["it is asked", "the mode is capture"]),
        ({"control": "a/socket"}, ["'a/socket' is no absolute path"]),
        ({"capture_rate": "1KiB"}, ["1024 bytes a second is below 1048576"]),
        ({"identity": "name"}, ["'name' is unknown", "content, manifest"]),
        ({"mode": "capture", "artifact": "/a"}, ["never written to"]),
        ("auto", ["it is a str"]),
    ],
)
def test_what_makes_no_sense_is_refused(ours: object, words: list[str]) -> None:
    with pytest.raises(errors.RequestInvalidError) as caught:
        configuration.resolve({"coldsnap": ours}, {})
    for word in words:
        assert word in str(caught.value)


def test_the_engine_s_own_loader_sees_nothing_of_ours() -> None:
    assert configuration.without_ours({"coldsnap": {"mode": "off"}, "num_threads": 4}) == {"num_threads": 4}
    other = object()
    assert configuration.without_ours(other) is other
    assert configuration.resolve(other, {}).mode.value == "auto"
