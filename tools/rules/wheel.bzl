"""A wheel: Python sources, extension modules and what goes beside them, as one installable file."""

load(":python.bzl", "PySourcesInfo", "ToolsetInfo")
load(":sbom.bzl", "SbomInfo")

_ARCHITECTURES = {"aarch64": "aarch64", "k8": "x86_64"}

def _wheel_impl(ctx):
    toolset = ctx.attr._toolset[ToolsetInfo]
    cpu = ctx.var["TARGET_CPU"]
    if cpu not in _ARCHITECTURES:
        fail("{}: no wheel for the processor {}; known are {}".format(ctx.label, cpu, ", ".join(_ARCHITECTURES.keys())))
    tag = "-".join([toolset.tag, toolset.abi, toolset.platform + "_" + _ARCHITECTURES[cpu]])
    wheel = ctx.actions.declare_file("{}-{}-{}.whl".format(ctx.attr.distribution, ctx.attr.version, tag))

    members = {}
    for dep in ctx.attr.deps:
        for file in dep[PySourcesInfo].sources.to_list():
            if not file.short_path.startswith("py/"):
                fail("{}: {} lies outside py/, so nothing could import it".format(ctx.label, file.short_path))
            members[file.short_path[len("py/"):]] = file
        for placed in dep[PySourcesInfo].placed.to_list():
            members[placed.path] = placed.file
    licences = {}
    for target, name in ctx.attr.licences.items():
        for file in target[DefaultInfo].files.to_list():
            licences[name or file.basename] = file
    sbom = ctx.attr.sbom[SbomInfo]
    expressions = [ctx.attr.licence]
    for component in sbom.components:
        if component.licence_text:
            licences["third_party/{}.txt".format(component.name)] = component.licence_text
            expressions += [part for part in component.licence.split(" AND ") if part not in expressions]

    plan = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(plan, json.encode({
        "description": ctx.file.description.path if ctx.file.description else "",
        "distribution": ctx.attr.distribution,
        "entry_points": ctx.attr.entry_points,
        "licences": {name: file.path for name, file in licences.items()},
        "members": {path: file.path for path, file in members.items()},
        "requires": ctx.attr.requires,
        "extras": ctx.attr.extras,
        "requires_python": toolset.requires,
        "summary": ctx.attr.summary,
        "licence_expression": " AND ".join(expressions),
        "sbom": sbom.sbom.path,
        "tag": tag,
        "version": ctx.attr.version,
    }))
    ctx.actions.run(
        executable = ctx.executable._writer,
        arguments = [plan.path, wheel.path],
        inputs = [plan, sbom.sbom] + members.values() + licences.values() + ctx.files.description,
        outputs = [wheel],
        mnemonic = "Wheel",
        progress_message = "Packing {}".format(wheel.basename),
    )
    return [DefaultInfo(files = depset([wheel]), runfiles = ctx.runfiles([wheel]))]

coldsnap_py_wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "deps": attr.label_list(mandatory = True, providers = [PySourcesInfo]),
        "description": attr.label(allow_single_file = [".md"]),
        "distribution": attr.string(mandatory = True),
        "entry_points": attr.string_list_dict(doc = "Group -> lines `name = module:object`."),
        "extras": attr.string_list_dict(doc = "Extra -> requirements."),
        "licence": attr.string(doc = "SPDX expression of our own part.", mandatory = True),
        "licences": attr.label_keyed_string_dict(allow_files = True, doc = "Files -> name in the wheel, or empty for their own."),
        "requires": attr.string_list(),
        "sbom": attr.label(doc = "Lists what the wheel carries, whose terms go along.", mandatory = True, providers = [SbomInfo]),
        "summary": attr.string(),
        "version": attr.string(mandatory = True),
        "_toolset": attr.label(default = "@pyenv//:env", providers = [ToolsetInfo]),
        "_writer": attr.label(cfg = "exec", default = "//tools/rules:make_wheel", executable = True),
    },
)
