"""A program that npm carries as a prebuilt file, checked against a digest."""

def _npm_program_impl(ctx):
    ctx.file("BUILD", 'exports_files(["program"], visibility = ["//visibility:public"])\n')
    named = ctx.os.environ.get(ctx.attr.override)
    if named:
        ctx.symlink(named, "program")
        return
    npm = ctx.which("npm")
    if not npm:
        # An empty file: whoever runs the program says that it was left out, and how to get it.
        ctx.file("program", "", executable = False)
        return
    package = "{}@{}".format(ctx.attr.package, ctx.attr.version)
    packed = ctx.execute([npm, "pack", "--silent", package], timeout = 300)
    if packed.return_code:
        fail("fetch {} for @{}: npm pack ended with {}; remedy: name the program in {}\n{}".format(
            package,
            ctx.name,
            packed.return_code,
            ctx.attr.override,
            packed.stderr,
        ))
    archive = packed.stdout.strip().split("\n")[-1]
    digest = ctx.execute(["sha512sum", archive]).stdout.split(" ")[0]
    if digest != ctx.attr.sha512:
        fail("check {} for @{}: its SHA-512 is {}, the pinned one {}; remedy: if the new one is right, pin it in third_party/repositories.bzl".format(
            archive,
            ctx.name,
            digest,
            ctx.attr.sha512,
        ))
    arch = {"aarch64": "arm64", "x86_64": "amd64"}.get(ctx.execute(["uname", "-m"]).stdout.strip(), "unknown")
    ctx.extract(archive, "unpacked")
    ctx.symlink("unpacked/package/" + ctx.attr.member.format(arch = arch), "program")

npm_program = repository_rule(
    implementation = _npm_program_impl,
    attrs = {
        "member": attr.string(mandatory = True, doc = "File in the package; {arch} is amd64 or arm64."),
        "override": attr.string(mandatory = True, doc = "Environment variable that names the program instead."),
        "package": attr.string(mandatory = True),
        "sha512": attr.string(mandatory = True),
        "version": attr.string(mandatory = True),
    },
    environ = ["COLDSNAP_BUILDIFIER"],
)
