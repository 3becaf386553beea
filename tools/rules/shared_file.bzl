"""A shared library that is linked by file name and found at run time by the loader's own rules.

cc_import would write Bazel's `_solib_*` folders into the RUNPATH of all that links it, and those entries would ship in
the wheel. Here the linker gets the file itself: what runs in this machine finds it by soname where the system has it,
and the extension module adds `$ORIGIN` and carries the file beside it.
"""

def _shared_file_impl(ctx):
    lib = ctx.file.lib
    headers = depset(ctx.files.hdrs)
    include = ctx.label.workspace_root + "/" + ctx.attr.include if ctx.label.workspace_root else ctx.attr.include
    flags = [lib.path] + ["-Wl,-rpath," + path for path in ctx.attr.rpaths]
    linker_input = cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = depset(flags),
        additional_inputs = depset([lib]),
    )
    return [
        DefaultInfo(files = depset([lib])),
        CcInfo(
            compilation_context = cc_common.create_compilation_context(
                headers = headers,
                system_includes = depset([include]),
            ),
            linking_context = cc_common.create_linking_context(linker_inputs = depset([linker_input])),
        ),
    ]

shared_file = rule(
    implementation = _shared_file_impl,
    attrs = {
        "hdrs": attr.label_list(allow_files = True),
        "include": attr.string(default = "include"),
        "lib": attr.label(allow_single_file = True, mandatory = True),
        "rpaths": attr.string_list(),
    },
    provides = [CcInfo],
)
