"""What a wheel is made of and needs, as components, and the bill of materials (CycloneDX) that lists them."""

ComponentInfo = provider(
    doc = "Software of others that is in a wheel, or that the wheel needs.",
    fields = {
        "file": "File that goes into the wheel, by the linker or as it is; None where only headers do.",
        "licence": "SPDX expression.",
        "licence_text": "File with the terms, which the wheel carries; None for what the wheel only needs.",
        "name": "Name where it comes from.",
        "optional": "Whether the wheel works without it.",
        "origin": "File that says which version that is: a lock, a header, or JSON with version and purl.",
    },
)

SbomInfo = provider(
    doc = "A bill of materials.",
    fields = {
        "components": "List of ComponentInfo.",
        "sbom": "The file.",
    },
)

def _component_impl(ctx):
    return [
        ComponentInfo(
            file = ctx.file.file,
            licence = ctx.attr.licence,
            licence_text = ctx.file.licence_text,
            name = ctx.attr.component,
            optional = ctx.attr.optional,
            origin = ctx.file.origin,
        ),
    ]

coldsnap_component = rule(
    implementation = _component_impl,
    attrs = {
        "component": attr.string(mandatory = True, doc = "Its name where it comes from."),
        "file": attr.label(allow_single_file = True, doc = "What is linked in or carried, if that is one file."),
        "licence": attr.string(mandatory = True, doc = "SPDX expression."),
        "licence_text": attr.label(allow_single_file = True, doc = "Its terms, if the wheel carries any of it."),
        "optional": attr.bool(doc = "The wheel needs it for an extra alone."),
        "origin": attr.label(allow_single_file = [".h", ".json", ".lock"], doc = "Says its version.", mandatory = True),
    },
    provides = [ComponentInfo],
)

def _sbom_impl(ctx):
    components = [component[ComponentInfo] for component in ctx.attr.components]
    sbom = ctx.actions.declare_file("{}.cdx.json".format(ctx.attr.distribution))
    plan = ctx.actions.declare_file(ctx.label.name + ".plan.json")
    ctx.actions.write(plan, json.encode({
        "components": [{
            "carried": each.licence_text != None,
            "file": each.file.path if each.file else "",
            "licence": each.licence,
            "name": each.name,
            "optional": each.optional,
            "origin": each.origin.path,
        } for each in components],
        "distribution": ctx.attr.distribution,
        "licence": ctx.attr.licence,
        "version": ctx.attr.version,
    }))
    ctx.actions.run(
        executable = ctx.executable._writer,
        arguments = [plan.path, sbom.path],
        inputs = [plan] + [each.origin for each in components] + [each.file for each in components if each.file],
        outputs = [sbom],
        mnemonic = "Sbom",
        progress_message = "Listing {}".format(sbom.basename),
    )
    return [
        DefaultInfo(files = depset([sbom]), runfiles = ctx.runfiles([sbom])),
        SbomInfo(components = components, sbom = sbom),
    ]

coldsnap_sbom = rule(
    implementation = _sbom_impl,
    attrs = {
        "components": attr.label_list(mandatory = True, providers = [ComponentInfo]),
        "distribution": attr.string(mandatory = True),
        "licence": attr.string(doc = "SPDX expression of our own part.", mandatory = True),
        "version": attr.string(mandatory = True),
        "_writer": attr.label(cfg = "exec", default = "//tools/rules:make_sbom", executable = True),
    },
    provides = [SbomInfo],
)
