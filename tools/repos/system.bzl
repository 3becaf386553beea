"""Libraries of the machine as Bazel repositories.

`system_library` looks for headers and libraries below the prefixes in COLDSNAP_DEPS (separated by colons, so that a
package split into a folder with headers and one with libraries takes two), then below /usr and /usr/local. It links
what it finds into `include/` and `lib/` of the repository. What is missing ends the fetch with the name of the
Debian package.
"""

_LIB_DIRS = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"]

def _first(ctx, candidates):
    for candidate in candidates:
        path = ctx.path(candidate)
        if path.exists:
            return path
    return None

def _missing(ctx, what, prefixes):
    fail("find {what} for @{name} below {prefixes}: not there; remedy: apt-get install {apt}, or name a prefix that has it in COLDSNAP_DEPS".format(
        what = what,
        name = ctx.name,
        prefixes = ", ".join(prefixes),
        apt = ctx.attr.apt,
    ))

def _package(ctx, file):
    """What Debian's packages say of a file, as JSON; nothing of a file that they don't have."""
    dpkg = ctx.which("dpkg-query")
    owner = dpkg and ctx.execute([dpkg, "--search", str(file)])
    if not owner or owner.return_code:
        return "{}"
    name = owner.stdout.split(": ")[0]
    shown = ctx.execute([dpkg, "--show", "--showformat=${Package} ${Version} ${Architecture}", name])
    if shown.return_code:
        return "{}"
    package, version, architecture = shown.stdout.split(" ")
    system = [line for line in ctx.read("/etc/os-release").split("\n") if line.startswith("ID=")][0][len("ID="):].strip('"')
    return json.encode({
        "purl": "pkg:deb/{}/{}@{}?arch={}".format(system, package, version.replace(":", "%3A").replace("+", "%2B"), architecture),
        "version": version,
    })

def _system_library_impl(ctx):
    named = [p for p in ctx.os.environ.get("COLDSNAP_DEPS", "").split(":") if p]
    prefixes = named + ["/usr", "/usr/local"]

    taken = None  # a library where there is one, else headers
    for header in ctx.attr.headers:
        found = _first(ctx, [prefix + "/include/" + header for prefix in prefixes])
        if not found:
            _missing(ctx, "include/" + header, prefixes)

        # A folder of headers is linked as a whole: the library's headers name each other by relative paths.
        ctx.symlink(found, "include/" + header)
        taken = found

    rpaths = {}
    for lib in ctx.attr.libs:
        found = _first(ctx, [
            "{}/{}/{}".format(prefix, folder, lib)
            for prefix in prefixes
            for folder in _LIB_DIRS
        ])
        if not found:
            _missing(ctx, lib, prefixes)
        ctx.symlink(found, "lib/" + lib)
        taken = found

        # The loader knows /usr by itself; another prefix has to be written into what links the library.
        if not str(found).startswith("/usr/"):
            rpaths[str(found.dirname)] = True

    # The wheel carries the terms of what is linked into it.
    terms = _first(ctx, ["{}/share/doc/{}/copyright".format(prefix, ctx.attr.apt.split(" ")[0]) for prefix in prefixes])
    if terms:
        ctx.symlink(terms, "LICENSE.txt")
    else:
        ctx.file("LICENSE.txt", "The terms of {} were not found where this was built.\n".format(ctx.name), executable = False)

    ctx.file("package.json", _package(ctx, taken), executable = False)
    ctx.file("defs.bzl", '"""Written by tools/repos/system.bzl."""\n\nRPATHS = {}\n'.format(repr(rpaths.keys())))
    ctx.template("BUILD", ctx.attr.build_file, executable = False)

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "Debian packages that bring it."),
        "build_file": attr.label(mandatory = True),
        "headers": attr.string_list(doc = "Files or folders below include/."),
        "libs": attr.string_list(doc = "File names below lib/ or lib/<architecture>/."),
    },
    environ = ["COLDSNAP_DEPS"],
    local = True,
    doc = "A library that the machine has, checked for at fetch time.",
)
