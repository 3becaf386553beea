"""cuda_library, with the attributes of the published rules_cuda."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

ArchsInfo = provider(doc = "Value of @rules_cuda//cuda:archs.", fields = ["specs"])

def _archs_flag_impl(ctx):
    return [ArchsInfo(specs = [spec for spec in ctx.build_setting_value.split(";") if spec])]

cuda_archs_flag = rule(
    implementation = _archs_flag_impl,
    build_setting = config.string(flag = True),
)

def _architectures(specs):
    """nvcc's -gencode options for specs such as "compute_90:sm_90,compute_90"."""
    options = []
    for spec in specs:
        virtual, _, codes = spec.partition(":")
        if not virtual.startswith("compute_") or not codes:
            fail("read @rules_cuda//cuda:archs: {} has not the form compute_NN:sm_NN,compute_NN".format(repr(spec)))
        for code in codes.split(","):
            options += ["-gencode", "arch={},code={}".format(virtual, code)]
    return options

def _host_options(options):
    # nvcc splits what it hands on at commas, so each option goes alone and none may hold one. The sanitizers' options
    # do, and are left out: the host side of a .cu file is little more than the launch.
    return [
        part
        for option in options
        if "-fsanitize" not in option and "-fno-sanitize" not in option
        for part in ["-Xcompiler", option]
    ]

def _compile(ctx, source, cc_toolchain, context):
    objects = ctx.actions.declare_file("_objs/{}/{}.pic.o".format(ctx.label.name, source.basename.rpartition(".")[0]))

    # Kept, nvcc's intermediate files have the source's name; else it has the process number in it, and so has the object.
    kept = ctx.actions.declare_directory("_objs/{}/{}.kept".format(ctx.label.name, source.basename.rpartition(".")[0]))
    mode = ctx.var["COMPILATION_MODE"]
    args = ctx.actions.args()
    args.add_all(["--keep", "--keep-dir", kept.path])
    args.add_all(["-ccbin", cc_toolchain.compiler_executable, "-x", "cu", "-c", source.path, "-o", objects.path])
    args.add_all(_architectures(ctx.attr._archs[ArchsInfo].specs))
    args.add_all(["-O3", "-DNDEBUG"] if mode == "opt" else ["-O1", "-lineinfo"])

    args.add_all(_host_options(["-fPIC", "-fstack-protector"] + ctx.fragments.cpp.copts + ctx.attr.host_copts))
    args.add_all(ctx.attr.copts)
    for option in ctx.attr.ptxasopts:
        args.add_all(["-Xptxas", option])
    args.add_all(context.defines, before_each = "-D")
    args.add_all(context.local_defines, before_each = "-D")
    args.add_all(ctx.attr.local_defines + ctx.attr.host_local_defines, before_each = "-D")
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.quote_includes, before_each = "-I")

    args.add_all(context.system_includes, before_each = "-isystem")

    # nvcc.profile names this folder by -I; named here as well it counts as the system's, and what it declares otherwise
    # than glibc does (rsqrt, in 2.43) is no error.
    args.add("-isystem", ctx.executable._nvcc.dirname.rpartition("/")[0] + "/include")
    ctx.actions.run(
        executable = ctx.executable._nvcc,
        arguments = [args],
        inputs = depset([source] + ctx.files.hdrs, transitive = [context.headers, cc_toolchain.all_files, ctx.attr._compiler[DefaultInfo].files]),
        outputs = [objects, kept],
        mnemonic = "CudaCompile",
        progress_message = "Compiling {} for CUDA".format(source.short_path),
        use_default_shell_env = True,
    )
    return objects

def _cuda_library_impl(ctx):
    if ctx.attr.rdc:
        fail("{}: rdc = True is not in this subset of rules_cuda; remedy: keep device code that calls each other in one source, or --config=real_rules_cuda".format(ctx.label))
    if not ctx.attr._archs[ArchsInfo].specs:
        fail("{}: no architecture to compile for; remedy: --@rules_cuda//cuda:archs=compute_90:sm_90".format(ctx.label))
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    package = "/".join([part for part in [ctx.label.workspace_root, ctx.label.package] if part])
    own = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        system_includes = depset([package + "/" + path for path in ctx.attr.includes]),
        defines = depset(ctx.attr.defines + ctx.attr.host_defines),
        quote_includes = depset([".", ctx.bin_dir.path]),
    )
    deps = ctx.attr.deps + [ctx.attr._runtime]
    exported = cc_common.merge_cc_infos(
        cc_infos = [CcInfo(compilation_context = own)] + [dep[CcInfo] for dep in deps],
    ).compilation_context
    objects = [
        _compile(ctx, source, cc_toolchain, exported)
        for source in ctx.files.srcs
        if source.extension == "cu"
    ]

    # Position-independent objects serve programs and shared objects alike; each .cu is compiled once.
    linking, outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        alwayslink = ctx.attr.alwayslink,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset(objects)),
        disallow_dynamic_library = True,
        feature_configuration = features,
        linking_contexts = [dep[CcInfo].linking_context for dep in deps],
        name = ctx.label.name,
        user_link_flags = ctx.attr.host_linkopts,
    )
    archive = outputs.library_to_link.pic_static_library if outputs.library_to_link else None
    return [
        DefaultInfo(files = depset([archive] if archive else [])),
        CcInfo(compilation_context = exported, linking_context = linking),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "alwayslink": attr.bool(),
        "copts": attr.string_list(doc = "For nvcc."),
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh", ".hpp"]),
        "host_copts": attr.string_list(doc = "For the host compiler, through nvcc."),
        "host_defines": attr.string_list(),
        "host_linkopts": attr.string_list(),
        "host_local_defines": attr.string_list(),
        "includes": attr.string_list(),
        "linkopts": attr.string_list(doc = "For nvcc's device link, which only rdc needs."),
        "local_defines": attr.string_list(),
        "ptxasopts": attr.string_list(),
        "rdc": attr.bool(),
        "srcs": attr.label_list(allow_files = [".cu", ".h", ".cuh"]),
        "_archs": attr.label(default = "//cuda:archs"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_compiler": attr.label(default = "@cuda_toolkit//:compiler"),
        "_nvcc": attr.label(allow_single_file = True, cfg = "exec", default = "@cuda_toolkit//:toolkit/bin/nvcc", executable = True),
        "_runtime": attr.label(default = "//cuda:runtime", providers = [CcInfo]),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
