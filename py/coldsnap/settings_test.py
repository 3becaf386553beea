"""Precedence, parsing and refusals of the hydration settings."""

import warnings
from typing import Any

import pytest

from coldsnap import errors, settings
from coldsnap.settings import MIB, Setting


def value_of(name: str, given: Any = None, **environ: str) -> Setting:
    return settings.resolve({name: given}, environ)[name]


def test_defaults() -> None:
    found = settings.resolve({}, {})
    assert {name: setting.value for name, setting in found.items()} == {
        "backend": "python",
        "verify": "crc32+sha256",
        "verify_mode": "inline",
        "place": "auto",
        "chunk_bytes": 4 * MIB,
        "queue_depth": None,
        "read_threads": None,
        "pinned_max_bytes": 512 * MIB,
    }
    assert {setting.source for setting in found.values()} == {"default"}


def test_explicit_wins_over_environment_wins_over_default() -> None:
    environ = {"COLDSNAP_HYDRATION_BACKEND": "buffered"}
    assert value_of("backend", "direct", **environ) == Setting("direct", "explicit")
    assert value_of("backend", None, **environ) == Setting("buffered", "environment")
    assert value_of("backend", None, COLDSNAP_HYDRATION_BACKEND="") == Setting("python", "default")


def test_an_adapter_s_default_stands_behind_the_environment() -> None:
    default = settings.Setting("auto", "adapter-default")
    assert settings.resolve({"backend": default}, {})["backend"] is default
    assert not default.chosen
    chosen = settings.resolve({"backend": default}, {"COLDSNAP_HYDRATION_BACKEND": "direct"})["backend"]
    assert (chosen.value, chosen.source) == ("direct", "environment")
    assert settings.backend_reason(default, "COLDSNAP_HYDRATION_BACKEND")["code"] == "adapter_default"
    found = settings.backend_reason(chosen, "COLDSNAP_HYDRATION_BACKEND")
    assert found == {"code": "explicit", "detail": "COLDSNAP_HYDRATION_BACKEND is direct"}


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("COLDSNAP_HYDRATION_BACKEND", "auto", "backend", "auto"),
        ("COLDSNAP_HYDRATION_VERIFY", "crc32", "verify", "crc32"),
        ("COLDSNAP_VERIFY_PLACE", "host", "place", "host"),
        ("COLDSNAP_HYDRATION_CHUNK_BYTES", "8MiB", "chunk_bytes", 8 * MIB),
        ("COLDSNAP_HYDRATION_QUEUE_DEPTH", "3", "queue_depth", 3),
        ("COLDSNAP_HYDRATION_READ_THREADS", "5", "read_threads", 5),
        ("COLDSNAP_PINNED_MAX_BYTES", "1GiB", "pinned_max_bytes", 1024 * MIB),
    ],
)
def test_every_setting_has_its_variable(variable: str, text: str, name: str, value: Any) -> None:
    assert value_of(name, None, **{variable: text}) == Setting(value, "environment")


@pytest.mark.parametrize(
    ("text", "size"),
    [(65536, 65536), ("65536", 65536), ("64KiB", 65536), ("64 MiB", 64 * MIB), ("1GiB", 1024 * MIB), (" 7 ", 7)],
)
def test_sizes(text: Any, size: int) -> None:
    assert settings.parse_size(text, "--bytes") == size


@pytest.mark.parametrize(
    "text", ["", "0", 0, -1, "-1", "64MB", "64Mi", "MiB", "1.5GiB", "1e9", "1KiBMiB", True, 1.0, None, "9" * 30, "٣"]
)
def test_what_is_no_size_is_refused_with_an_example(text: Any) -> None:
    with pytest.raises(errors.RequestInvalidError, match="--bytes"):
        settings.parse_size(text, "--bytes")


@pytest.mark.parametrize("chunk", [1, 512, 65535, 65537, "4095KiB"])
def test_a_chunk_is_whole_pieces(chunk: Any) -> None:
    with pytest.raises(errors.RequestInvalidError, match="not a multiple of 65536") as caught:
        value_of("chunk_bytes", chunk)
    assert "the nearest that is" in caught.value.remedy


@pytest.mark.parametrize("depth", [0, -1, 65, 1.0, True, "", "many", "1.0", [4]])
def test_a_queue_depth_is_a_small_count(depth: Any) -> None:
    with pytest.raises(errors.RequestInvalidError, match="queue_depth") as caught:
        value_of("queue_depth", depth)
    assert "1 to 64" in caught.value.remedy


@pytest.mark.parametrize("name", ["backend", "verify", "place"])
@pytest.mark.parametrize("value", ["", "Direct", "crc", 7, b"auto", ["auto"]])
def test_an_unknown_word_is_refused_with_the_known_ones(name: str, value: Any) -> None:
    with pytest.raises(errors.RequestInvalidError) as caught:
        value_of(name, value)
    known = {"backend": settings.BACKENDS, "verify": settings.VERIFY_MODES, "place": settings.PLACES}[name]
    assert ", ".join(known) in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_bad_variable_is_called_by_its_name() -> None:
    with pytest.raises(errors.RequestInvalidError, match="COLDSNAP_HYDRATION_CHUNK_BYTES"):
        settings.resolve({}, {"COLDSNAP_HYDRATION_CHUNK_BYTES": "4MB"})


def test_a_library_may_be_named_with_its_digest_or_without() -> None:
    digest = "0123456789ABCDEF" * 4
    assert settings.native_library({}) is None
    assert settings.native_library({settings.NATIVE_LIBRARY: "", settings.NATIVE_SHA256: ""}) is None
    assert settings.native_library({settings.NATIVE_LIBRARY: "x.so"}) == ("x.so", None)
    both = {settings.NATIVE_LIBRARY: "x.so", settings.NATIVE_SHA256: digest}
    assert settings.native_library(both) == ("x.so", digest.lower())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings.resolve({}, both)


def test_a_digest_without_a_library_is_refused_whoever_moves_the_bytes() -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"NATIVE_SHA256: COLDSNAP_HYDRATION_NATIVE_LIBRARY names no"):
        settings.resolve({"backend": "python"}, {settings.NATIVE_SHA256: "0" * 64})


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "g" * 64, "sha256:" + "0" * 57, "٣" * 64])
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match="is no SHA-256"):
        settings.resolve({}, {settings.NATIVE_LIBRARY: "x.so", settings.NATIVE_SHA256: digest})


def test_a_misspelt_variable_is_warned_of_with_the_nearest_name() -> None:
    with pytest.warns(UserWarning, match=r"COLDSNAP_HYDRATION_QUEUE_DEPHT.*nearest is COLDSNAP_HYDRATION_QUEUE_DEPTH"):
        settings.resolve({}, {"COLDSNAP_HYDRATION_QUEUE_DEPHT": "4"})


@pytest.mark.parametrize(
    ("variable", "near"), [("COLDSNAP_STOER", "COLDSNAP_STORE"), ("COLDSNAP_MOD", "COLDSNAP_MODE")]
)
def test_one_without_a_longer_prefix_too(variable: str, near: str) -> None:
    for resolve in (settings.resolve, settings.resolve_capture):
        with pytest.warns(UserWarning, match=f"{variable} is no setting of coldsnap.*the nearest is {near}$"):
            resolve({}, {variable: "x"})


def test_other_variables_are_nobody_s_business() -> None:
    known = dict.fromkeys((*settings.STATE_VARIABLES, *settings.BUILD_VARIABLES), "x")
    known |= {"COLDSNAP_STORE": "s", "COLDSNAP_STORE_MAX_BYTES": "m", "COLDSNAP_ARTIFACT": "a", "COLDSNAP_MODE": "m"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings.resolve({}, known | {"COLDSNAP_TEST_DEVICE": "x", "PATH": "y", "COLDSNAP_HYDRATION_BACKEND": "auto"})


def test_what_a_start_goes_by() -> None:
    for mode in ("auto", "capture", "restore", "off"):
        assert settings.resolve_one(settings.MODE, None, {"COLDSNAP_MODE": mode}) == Setting(mode, "environment")
    assert settings.resolve_one(settings.MODE, None, {}) == Setting("auto", "default")
    with pytest.raises(
        errors.RequestInvalidError, match="COLDSNAP_MODE: 'on' is unknown; the known ones: auto, capture"
    ):
        settings.resolve_one(settings.MODE, None, {"COLDSNAP_MODE": "on"})
    found = settings.resolve_one(settings.ARTIFACT, None, {"COLDSNAP_ARTIFACT": "/models/a"})
    assert found == Setting("/models/a", "environment")
    with pytest.raises(errors.RequestInvalidError, match="read COLDSNAP_ARTIFACT: 'a' is no absolute path"):
        settings.resolve_one(settings.ARTIFACT, None, {"COLDSNAP_ARTIFACT": "a"})


def limits(cores: int = 4, **others: Any) -> dict[str, Any]:
    """What `_native.limits` says, as far as `fit_ring` looks at it."""
    unlimited = {"memory_headroom_bytes": None, "memory_source": "", "local_ranks": 1, "local_ranks_source": ""}
    return {"cpus_per_rank": cores, "notes": [], **unlimited, **others}


def fitted(machine: dict[str, Any] | None = None, **given: Any) -> tuple[dict[str, Setting], list[dict[str, str]]]:
    return settings.fit_ring(settings.resolve(given, {}), machine or limits())


def ring(full: dict[str, Setting]) -> tuple[int, int]:
    return full["queue_depth"].value, full["chunk_bytes"].value


BUFFERED = {"read_threads": 12, "chunk_bytes": 2 * MIB, "queue_depth": 24}
DIRECT = {"read_threads": 2, "chunk_bytes": 2 * MIB, "queue_depth": 8}


def test_a_profile_gives_what_nobody_chose() -> None:
    found = settings.resolve({"chunk_bytes": MIB}, {})
    full, _ = settings.fit_ring(settings.apply_profile(found, BUFFERED, DIRECT), limits())
    assert full["chunk_bytes"] == Setting(MIB, "explicit")
    assert full["read_threads"] == Setting(12, "profile")
    native = settings.native_settings(full, limits())
    assert (native["queue_depth"], native["direct_queue_depth"]) == (24, 8)
    assert (native["read_threads"], native["direct_read_threads"]) == (12, 2)


def test_threads_that_were_chosen_hold_for_every_route() -> None:
    found = settings.resolve({"read_threads": 5, "queue_depth": 10}, {})
    full, _ = settings.fit_ring(settings.apply_profile(found, BUFFERED, DIRECT), limits())
    native = settings.native_settings(full, limits())
    assert (native["read_threads"], native["direct_read_threads"]) == (5, 0)
    assert (native["queue_depth"], native["direct_queue_depth"]) == (10, 0)


def test_a_ring_that_shrank_bounds_the_depth_of_direct_reads() -> None:
    found = settings.resolve({"pinned_max_bytes": 8 * MIB}, {})
    full, _ = settings.fit_ring(settings.apply_profile(found, BUFFERED, DIRECT), limits())
    native = settings.native_settings(full, limits())
    assert native["direct_queue_depth"] == native["queue_depth"] == 4


def test_a_profile_of_one_route_serves_both() -> None:
    full = settings.apply_profile(settings.resolve({}, {}), {}, DIRECT)
    assert full["read_threads"] == full["direct_read_threads"] == Setting(2, "profile")


def test_without_a_profile_small_reads_go_to_the_drive() -> None:
    full, _ = settings.fit_ring(settings.apply_profile(settings.resolve({}, {}), {}, {}), limits(cores=16))
    assert full["direct_chunk_bytes"] == Setting(MIB, "default")
    native = settings.native_settings(full, limits())
    assert (native["chunk_bytes"], native["direct_chunk_bytes"]) == (4 * MIB, MIB)
    assert (native["queue_depth"], native["direct_queue_depth"]) == (32, 16)
    assert (native["read_threads"], native["direct_read_threads"]) == (16, 8)


def test_a_chunk_that_was_chosen_holds_for_the_drive_too() -> None:
    full = settings.apply_profile(settings.resolve({"chunk_bytes": 8 * MIB}, {}), {}, {})
    assert "direct_chunk_bytes" not in full


def test_depth_is_twice_the_threads_which_are_the_cores() -> None:
    full, reasons = fitted(limits(cores=6))
    assert full["read_threads"] == Setting(6, "default")
    assert full["queue_depth"] == Setting(12, "default")
    assert full["chunk_bytes"] == Setting(4 * MIB, "default")
    assert reasons == []


def test_more_cores_than_a_drive_has_use_for() -> None:
    assert fitted(limits(cores=17))[0]["read_threads"] == Setting(16, "default")


def test_depth_follows_the_threads_that_were_chosen_up_to_its_limit() -> None:
    assert fitted(read_threads=3)[0]["queue_depth"].value == 6
    assert fitted(read_threads=64, chunk_bytes="64KiB")[0]["queue_depth"].value == settings.MAX_QUEUE_DEPTH


def test_a_depth_that_nobody_chose_shrinks_and_says_so() -> None:
    full, reasons = fitted(limits(cores=16), chunk_bytes=64 * MIB)
    assert full["queue_depth"] == Setting(8, "default")
    assert [reason["code"] for reason in reasons] == ["pinned_cap"]
    for part in ("32 x 67108864 =", f"{512 * MIB} bytes (pinned_max_bytes)", "it has 8 x 67108864 ="):
        assert part in reasons[0]["detail"]


def test_one_slot_is_enough_for_a_chunk_that_was_chosen() -> None:
    assert fitted(chunk_bytes=512 * MIB)[0]["queue_depth"] == Setting(1, "default")


def test_a_ring_that_just_fits_stays() -> None:
    full, reasons = fitted(chunk_bytes=64 * MIB, queue_depth=8)
    assert (full["queue_depth"].value, reasons) == (8, [])


def test_where_nobody_chose_slots_get_fewer_down_to_two_and_then_smaller() -> None:
    machine = limits(cores=16)
    assert ring(fitted(machine, pinned_max_bytes=23 * MIB)[0]) == (5, 4 * MIB)
    assert ring(fitted(machine, pinned_max_bytes=8 * MIB - 1)[0]) == (2, 4 * MIB - 64 * 1024)
    full, reasons = fitted(machine, pinned_max_bytes=6 * 64 * 1024)
    assert ring(full) == (2, settings.MIN_SLOT_BYTES)
    assert full["chunk_bytes"].source == "default"
    assert "it has 2 x 196608 = 393216 bytes" in reasons[0]["detail"]
    with pytest.raises(errors.RequestInvalidError, match=r"2 x 196608 = 393216 bytes .*, 393215 bytes"):
        fitted(machine, pinned_max_bytes=6 * 64 * 1024 - 1)


def test_a_depth_that_was_chosen_gets_smaller_slots() -> None:
    full, reasons = fitted(queue_depth=64, pinned_max_bytes=64 * MIB)
    assert full["queue_depth"] == Setting(64, "explicit")
    assert full["chunk_bytes"] == Setting(1 * MIB, "default")
    assert [reason["code"] for reason in reasons] == ["pinned_cap"]
    with pytest.raises(errors.RequestInvalidError, match="64 x 196608"):
        fitted(queue_depth=64, pinned_max_bytes=8 * MIB)


def test_a_ring_that_was_chosen_and_cannot_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(errors.RequestInvalidError) as caught:
        fitted(chunk_bytes=64 * MIB, queue_depth=9)
    for part in (f"9 x {64 * MIB} = {9 * 64 * MIB} bytes", f"{512 * MIB} bytes (pinned_max_bytes)"):
        assert part in caught.value.message
    assert caught.value.remedy == "lower queue_depth or chunk_bytes, or raise COLDSNAP_PINNED_MAX_BYTES"


def test_slots_of_small_chunks_are_as_large_as_they_must_be() -> None:
    assert fitted(chunk_bytes="64KiB", queue_depth=5, pinned_max_bytes="1MiB")[1] == []
    with pytest.raises(errors.RequestInvalidError, match="196608"):
        fitted(chunk_bytes="64KiB", queue_depth=6, pinned_max_bytes="1MiB")


def test_a_chunk_above_the_cap_is_refused() -> None:
    with pytest.raises(errors.RequestInvalidError, match=f"1 x {1024 * MIB} ="):
        fitted(chunk_bytes=1024 * MIB)


def test_a_quarter_of_the_memory_that_is_left_caps_the_ring() -> None:
    machine = limits(cores=16, memory_headroom_bytes=128 * MIB, memory_source="/sys/fs/cgroup/memory.max")
    full, reasons = fitted(machine)
    assert ring(full) == (8, 4 * MIB)
    says = f"{32 * MIB} bytes (a quarter of the {128 * MIB} bytes that /sys/fs/cgroup/memory.max leaves)"
    assert says in reasons[0]["detail"]
    with pytest.raises(errors.RequestInvalidError) as caught:
        fitted(machine, chunk_bytes="16MiB", queue_depth=3)
    assert says in caught.value.message
    assert caught.value.remedy.endswith("or give the container more memory")


def test_the_smaller_of_setting_and_memory_counts() -> None:
    machine = limits(cores=16, memory_headroom_bytes=256 * MIB, memory_source="memory.max")
    assert "(pinned_max_bytes)" in fitted(machine, pinned_max_bytes=64 * MIB)[1][0]["detail"]
    assert fitted(limits(cores=16, memory_headroom_bytes=1 << 40))[1] == []


def test_no_memory_left_is_refused() -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"0 bytes \(a quarter of the 3 bytes that memory.max leaves"):
        fitted(limits(memory_headroom_bytes=3, memory_source="memory.max"))


def test_ranks_share_the_cap() -> None:
    ranks = {"local_ranks": 8, "local_ranks_source": "LOCAL_WORLD_SIZE"}
    full, reasons = fitted(limits(cores=16, **ranks))
    assert ring(full) == (16, 4 * MIB)
    shared = f"{64 * MIB} bytes (pinned_max_bytes, {512 * MIB}, divided by the 8 local ranks of LOCAL_WORLD_SIZE)"
    assert shared in reasons[0]["detail"]
    _, reasons = fitted(limits(cores=16, memory_headroom_bytes=1024 * MIB, memory_source="memory.high", **ranks))
    assert f"the cap on pinned memory, {32 * MIB} bytes" in reasons[0]["detail"]
    assert f"that memory.high leaves, {256 * MIB}, divided by the 8" in reasons[0]["detail"]


def test_a_limit_that_could_not_be_read_is_said() -> None:
    _, reasons = fitted(limits(notes=["open memory.max: no"]), chunk_bytes=512 * MIB)
    assert [reason["code"] for reason in reasons] == ["limit_unknown", "pinned_cap"]
    assert reasons[0]["detail"] == "open memory.max: no"
