"""C++ targets: warnings are errors in our code, and every symbol is hidden unless marked."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

# Only here, never in an rc file: other people's code keeps its warnings.
COPTS = [
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    # {.chunk_bytes = 4 * kMiB} leaves the other fields at their defaults on purpose.
    "-Wno-missing-field-initializers",
]

def coldsnap_cc_library(name, copts = [], **kwargs):
    """A C++ library; arguments as cc_library."""
    cc_library(name = name, copts = COPTS + copts, **kwargs)

def coldsnap_cc_binary(name, copts = [], **kwargs):
    """A C++ program; arguments as cc_binary."""
    cc_binary(name = name, copts = COPTS + copts, **kwargs)

def coldsnap_cc_shared_library(name, exports, copts = [], linkopts = [], **kwargs):
    """A shared library that stands alone: its libraries are linked in, and only what `exports` lists can be seen.

    Args:
        name: File name of the library.
        exports: A linker's version script; every symbol that it names must be there.
        copts: Further compiler options.
        linkopts: Further linker options.
        **kwargs: As for cc_binary.
    """
    coldsnap_cc_binary(
        name = name,
        additional_linker_inputs = [exports],
        copts = ["-fdata-sections", "-ffunction-sections"] + copts,
        linkopts = [
            "-Wl,--version-script=$(location {})".format(exports),
            "-Wl,--exclude-libs,ALL",
            "-Wl,--gc-sections",
            "-Wl,--no-undefined-version",
            "-Wl,-rpath,'$$ORIGIN'",
        ] + linkopts,
        linkshared = True,
        **kwargs
    )

def coldsnap_c_test(name, copts = [], size = "small", **kwargs):
    """A program in C99 with a main() of its own that ends with 0; arguments as cc_test."""
    cc_test(name = name, size = size, copts = COPTS + ["-std=c99", "-pedantic"] + copts, **kwargs)

def coldsnap_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A GoogleTest program; GoogleTest, gmock and main() are linked in. Arguments as cc_test."""
    cc_test(
        name = name,
        size = size,
        copts = COPTS + copts,
        deps = deps + ["//third_party/gtest"],
        **kwargs
    )

def coldsnap_gpu_test(name, srcs, copts = [], deps = [], data = [], size = "small", tags = [], env = {}, **kwargs):
    """One GoogleTest source for both kinds of device.

    Makes `<name>_host`, which runs everywhere, and `<name>_gpu`, tagged `gpu` and run with --config=gpu. The sources
    are compiled once; the environment variable COLDSNAP_TEST_DEVICE (`host` or `cuda:0`) tells them where they are.

    Args:
        name: Stem of the names.
        srcs: Test sources.
        copts: Further compiler options.
        deps: Libraries; GoogleTest is added.
        data: Files that the tests read.
        size: As for cc_test.
        tags: For both tests.
        env: Further variables for both tests.
        **kwargs: As for cc_test.
    """
    coldsnap_cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        copts = copts,
        tags = tags,
        visibility = ["//visibility:private"],
        deps = deps + ["//third_party/gtest"],
        alwayslink = True,  # nothing refers to the registration of a test
    )
    for suffix, device, device_tags in [("_host", "host", []), ("_gpu", "cuda:0", ["gpu", "exclusive"])]:
        coldsnap_cc_test(
            name = name + suffix,
            size = size,
            data = data,
            env = dict(env, COLDSNAP_TEST_DEVICE = device),
            tags = tags + device_tags,
            deps = [":" + name + "_cases"],
            **kwargs
        )
