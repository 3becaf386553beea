"""The CUDA toolkit, from hash-locked wheels or from a folder of the machine, and the rules that compile with it.

`cuda_toolkit` takes the folder in COLDSNAP_CUDA if that is set (an installed toolkit, a join of Nix packages), else it
installs NVIDIA's wheels: nvcc and all it needs, with no system toolkit.

`rules_cuda` is our subset of the public rules_cuda, which runs on Bazel 4; COLDSNAP_RULES_CUDA=real (that is
`--config=real_rules_cuda`) takes the published ones. It is a switch, and never "try the network first", so that the
rules in use don't depend on the network of the moment.
"""

_MODES = ["real", "subset"]

def _mode(ctx):
    mode = ctx.os.environ.get("COLDSNAP_RULES_CUDA", "subset")
    if mode not in _MODES:
        fail("read COLDSNAP_RULES_CUDA for @{}: {} is not known; known are {}".format(ctx.name, repr(mode), ", ".join(_MODES)))
    return mode

def _install_wheels(ctx):
    lock = ctx.path(ctx.attr.requirements)
    python = ctx.path(ctx.attr._python_repository).dirname.get_child("venv").get_child("bin").get_child("python")
    done = ctx.execute([
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        "wheels",
        "-r",
        lock,
    ], timeout = 1800, environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"})
    if done.return_code:
        fail("install the CUDA wheels of {} for @{}: pip ended with {}; remedy: see pip's words, or name an installed toolkit in COLDSNAP_CUDA\n{}{}".format(
            ctx.attr.requirements,
            ctx.name,
            done.return_code,
            done.stdout,
            done.stderr,
        ))
    root = "wheels/nvidia/" + ctx.attr.folder

    # What tools that expect an installed toolkit look for; no symbol of culibos is ever asked for.
    ctx.symlink(root + "/lib", root + "/lib64")
    ctx.file(root + "/lib/libculibos.a", "!<arch>\n", executable = False)
    return ctx.path(root)

def _terms(ctx, package, name):
    """Puts the terms of a wheel of the lock, else those of the named toolkit, into the file `name`."""
    locked = [line for line in ctx.read(ctx.attr.requirements).split("\n") if line.startswith(package + "==")]
    folder = locked[0].split(" ")[0].replace("-", "_").replace("==", "-") if locked else package
    found = [path for path in [
        ctx.path("wheels/{}.dist-info/licenses/License.txt".format(folder)),
        ctx.path("toolkit/EULA.txt"),
    ] if path.exists]
    if found:
        ctx.symlink(found[0], name)
    else:
        ctx.file(name, "The terms of {} were not found where this was built.\n".format(package), executable = False)

def _cuda_toolkit_impl(ctx):
    named = ctx.os.environ.get("COLDSNAP_CUDA")
    if named:
        root = ctx.path(named)
        lib = "lib64"
    else:
        root = _install_wheels(ctx)
        lib = "lib"
    for needed in ["bin/nvcc", "include/cuda_runtime.h", "include/nvtx3/nvToolsExt.h", lib + "/libcudart_static.a"]:
        if not ctx.path(str(root) + "/" + needed).exists:
            fail("find {} for @{} in {}: not there; remedy: COLDSNAP_CUDA has to name a toolkit of CUDA 13.0, or be unset for NVIDIA's wheels".format(
                needed,
                ctx.name,
                root,
            ))
    ctx.symlink(root, "toolkit")
    if not ctx.path("toolkit/include/cufile.h").exists:
        fail("find cufile.h for @{} in {}/include: not there; remedy: add the cuFile headers to that toolkit".format(ctx.name, root))
    ctx.symlink(str(root) + "/include/cufile.h", "cufile/cufile.h")
    ctx.symlink(str(root) + "/include/nvtx3", "nvtx/nvtx3")

    # The static runtime and NVTX become part of our wheel; their terms and versions go along.
    _terms(ctx, "nvidia-cuda-runtime", "LICENSE.txt")
    _terms(ctx, "nvidia-nvtx", "LICENSE-nvtx.txt")
    if named:
        ctx.file("origin.lock", "# From COLDSNAP_CUDA: no version is known.\n", executable = False)
    else:
        ctx.symlink(ctx.path(ctx.attr.requirements), "origin.lock")
    ctx.template("BUILD", ctx.attr.build_file, {"{lib}": lib}, executable = False)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "folder": attr.string(mandatory = True, doc = "Where the wheels unpack to, below nvidia/."),
        "requirements": attr.label(mandatory = True, allow_single_file = True),
        "_python_repository": attr.label(default = "@pyenv//:BUILD"),
    },
    environ = ["COLDSNAP_CUDA"],
)

def _rules_cuda_impl(ctx):
    if _mode(ctx) == "real":
        ctx.download_and_extract(url = ctx.attr.urls, sha256 = ctx.attr.sha256, stripPrefix = ctx.attr.strip_prefix)
        return
    for label, path in ctx.attr.subset.items():
        ctx.symlink(ctx.path(label), path)
    ctx.file("BUILD", "")

rules_cuda = repository_rule(
    implementation = _rules_cuda_impl,
    attrs = {
        "sha256": attr.string(mandatory = True),
        "strip_prefix": attr.string(mandatory = True),
        "subset": attr.label_keyed_string_dict(mandatory = True, doc = "Files of the subset -> where the real rules have theirs."),
        "urls": attr.string_list(mandatory = True),
    },
    environ = ["COLDSNAP_RULES_CUDA"],
)

_NEEDS_BZL = """# Written by tools/repos/cuda.bzl.
{preamble}
TOOLKIT = "{toolkit}"

def platforms():
    {platforms}
"""

def _rules_cuda_needs_impl(ctx):
    ctx.file("BUILD", "")
    if _mode(ctx) == "subset":
        # The subset asks for @cuda_toolkit when something compiles, so that plain C++ never fetches it.
        ctx.file("defs.bzl", _NEEDS_BZL.format(preamble = "", platforms = "pass", toolkit = ""), executable = False)
        return
    ctx.file("defs.bzl", _NEEDS_BZL.format(
        preamble = 'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")',
        # Declared before theirs, which is older than Bazel 7 can do with.
        platforms = "http_archive(name = \"platforms\", sha256 = \"{}\", urls = {})".format(
            ctx.attr.platforms_sha256,
            repr(ctx.attr.platforms_urls),
        ),
        # A Label here and no attribute: Bazel fetches what attributes name, wanted or not.
        toolkit = ctx.path(Label("@cuda_toolkit//:BUILD")).dirname.get_child("toolkit"),
    ), executable = False)

rules_cuda_needs = repository_rule(
    implementation = _rules_cuda_needs_impl,
    attrs = {
        "platforms_sha256": attr.string(mandatory = True),
        "platforms_urls": attr.string_list(mandatory = True),
    },
    environ = ["COLDSNAP_RULES_CUDA"],
    doc = "What WORKSPACE gives to the rules in use. Apart from them, so that --override_repository can lay in theirs as they are.",
)

def _skylib_impl(ctx):
    if _mode(ctx) == "real":
        ctx.download_and_extract(url = ctx.attr.urls, sha256 = ctx.attr.sha256)
    else:
        # All that the rules built into Bazel 7 load.
        ctx.file("BUILD", "")
        ctx.file("bzl_library.bzl", "def bzl_library(**kwargs):\n    native.filegroup(name = kwargs[\"name\"])\n")

bazel_skylib = repository_rule(
    implementation = _skylib_impl,
    attrs = {
        "sha256": attr.string(mandatory = True),
        "urls": attr.string_list(mandatory = True),
    },
    environ = ["COLDSNAP_RULES_CUDA"],
)
