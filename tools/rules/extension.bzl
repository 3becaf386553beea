"""Extension modules over nanobind, and the stub files that describe them."""

load(":cc.bzl", "coldsnap_cc_shared_library")
load(":python.bzl", "PySourcesInfo", "ToolsetInfo", "coldsnap_py_binary", "coldsnap_py_test")

def _extension_impl(ctx):
    toolset = ctx.attr.toolset[ToolsetInfo]
    place = ctx.attr.module.replace(".", "/")
    folder = place.rpartition("/")[0]
    placed = {place + toolset.suffix: ctx.file.library}
    for file in ctx.files.bundled:
        placed[folder + "/" + file.basename] = file
    return [
        DefaultInfo(
            files = depset(placed.values()),
            # A package may only write below its own folder; runfiles can stand anywhere, and here they stand beside
            # the Python package. $ORIGIN in the module's RUNPATH finds the bundled libraries there.
            runfiles = ctx.runfiles(symlinks = {"py/" + path: file for path, file in placed.items()}),
        ),
        PySourcesInfo(
            placed = depset([struct(path = path, file = file) for path, file in placed.items()]),
            sources = depset(),
        ),
    ]

_extension = rule(
    implementation = _extension_impl,
    attrs = {
        "bundled": attr.label_list(allow_files = True),
        "library": attr.label(allow_single_file = True, mandatory = True),
        "module": attr.string(mandatory = True),
        "toolset": attr.label(mandatory = True, providers = [ToolsetInfo]),
    },
    provides = [PySourcesInfo],
)

def _exports_impl(ctx):
    script = ctx.actions.declare_file(ctx.label.name + ".lds")
    ctx.actions.write(script, "{{ global: PyInit_{}; local: *; }};\n".format(ctx.attr.module.rpartition(".")[2]))
    return [DefaultInfo(files = depset([script]))]

_exports = rule(
    implementation = _exports_impl,
    attrs = {"module": attr.string(mandatory = True)},
    doc = "A linker script that hides every symbol but the one that Python looks for.",
)

def _stub_impl(ctx):
    stub = ctx.actions.declare_file(ctx.attr.module.rpartition(".")[2] + ".generated.pyi")
    ctx.actions.run(
        executable = ctx.executable.generator,
        arguments = ["--module", ctx.attr.module, "--output-file", stub.path, "--quiet"],
        outputs = [stub],
        mnemonic = "Stub",
        progress_message = "Describing {}".format(ctx.attr.module),
    )
    return [DefaultInfo(files = depset([stub]))]

_stub = rule(
    implementation = _stub_impl,
    attrs = {
        # In the target configuration: in that of tools, all of the module's C++ would be compiled once more.
        "generator": attr.label(cfg = "target", executable = True, mandatory = True),
        "module": attr.string(mandatory = True),
    },
)

def coldsnap_py_extension(name, module, srcs, deps = [], bundled = [], stub = None, copts = [], visibility = None):
    """A nanobind module, importable from every Python target that has it in deps.

    Besides `name` it makes, if `stub` is given: `stub` (the generated description), `update_stub` (`bazel run` writes
    it over the checked-in one) and `stub_test` (compares them).

    Args:
        name: Name of the target.
        module: Full name of the module; it is placed at that path below py/.
        srcs: C++ sources.
        deps: C++ libraries; nanobind is added.
        bundled: Shared libraries that go beside the module.
        stub: The checked-in description, a label below py/.
        copts: Further compiler options.
        visibility: As usual.
    """
    _exports(name = name + "_exports", module = module, visibility = ["//visibility:private"])
    library = name + "_module.so"
    coldsnap_cc_shared_library(
        name = library,
        srcs = srcs,
        copts = copts,
        exports = ":" + name + "_exports",
        visibility = ["//visibility:private"],
        deps = deps + ["//third_party/nanobind"],
    )
    _extension(
        name = name,
        bundled = bundled,
        library = ":" + library,
        module = module,
        toolset = "@pyenv//:env",
        visibility = visibility,
    )
    if stub:
        coldsnap_py_binary(
            name = name + "_stubgen",
            srcs = ["//tools/rules:stubgen.py"],
            visibility = ["//visibility:private"],
            deps = [":" + name],
        )
        _stub(name = "stub", generator = ":" + name + "_stubgen", module = module, visibility = visibility)
        paths = {"GENERATED": "$(rootpath :stub)", "CHECKED_IN": "$(rootpath {})".format(stub), "UPDATE": "//{}:update_stub".format(native.package_name())}
        coldsnap_py_binary(
            name = "update_stub",
            srcs = ["//tools/rules:update_stub.py"],
            data = [":stub", stub],
            environment = paths,
        )
        coldsnap_py_test(
            name = "stub_test",
            srcs = ["//tools/rules:stub_test.py"],
            data = [":stub", stub],
            environment = paths,
        )
