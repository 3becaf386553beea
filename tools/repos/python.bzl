"""A Python environment as a Bazel repository: a venv with exactly the wheels of the given lock files.

The interpreter is COLDSNAP_PYTHON if set, else the first of the candidates below that runs. It is chosen here and not
by a wrapper script, so that `bazel` and `./bazelw` agree on it. pip's own settings (mirrors, proxies, folders of
wheels) reach it through the environment.
"""

_CANDIDATES = ["python3.11", "python3.12", "python3.13", "python3"]
_OLDEST = [3, 11]
_NEWEST = [3, 13]
_GLIBC_OF_DEBIAN_12 = 36
_OLDEST_GLIBC = 34

# Prints what the build has to know of an interpreter, one value a line.
_PROBE = """
import os, sys, sysconfig
print(sys._base_executable)
print(sys.version_info[0], sys.version_info[1])
print(sys.version.replace("\\n", " "))
print(sysconfig.get_config_var("EXT_SUFFIX"))
print(sysconfig.get_path("include"))
print(os.confstr("CS_GNU_LIBC_VERSION").split()[1])
"""

# Of nanobind and of the hash map that it carries.
_NANOBIND_TERMS = """
import importlib.metadata as m
for file in m.files("nanobind"):
    if file.name.startswith("LICENSE"):
        print(file.locate().read_text())
    elif file.name == "robin_map.h":
        print(file.locate().read_text().split("*/")[0])
"""

def _probe(ctx, program):
    """What an interpreter says of itself, or (None, why not)."""

    # Run rather than looked at: a pyenv shim for a version that is not switched on is on PATH and fails.
    done = ctx.execute([program, "-I", "-c", _PROBE])
    if done.return_code:
        return None, "ended with {}: {}".format(done.return_code, done.stderr.strip())
    lines = done.stdout.strip().split("\n")
    version = [int(part) for part in lines[1].split(" ")]
    if version < _OLDEST or version > _NEWEST:
        return None, "is {}.{}; supported are {}.{} to {}.{}".format(*(version + _OLDEST + _NEWEST))
    return struct(executable = lines[0], version = version, text = lines[2], suffix = lines[3], include = lines[4], glibc = lines[5]), None

def _platform(glibc):
    """The platform tag of a wheel that is built here, without the processor.

    What Debian 12's compiler and C library make needs glibc 2.34; on a newer system the wheel asks for that system's own.
    """
    minor = int(glibc.split(".")[1])
    return "manylinux_2_{}".format(minor if minor > _GLIBC_OF_DEBIAN_12 else _OLDEST_GLIBC)

def _interpreter(ctx):
    named = ctx.os.environ.get("COLDSNAP_PYTHON")
    tried = []
    for candidate in [named] if named else _CANDIDATES:
        program = ctx.path(candidate) if candidate.startswith("/") else ctx.which(candidate)
        if not program or not program.exists:
            tried.append(candidate + " is not on PATH")
            continue
        found, why_not = _probe(ctx, program)
        if found:
            return found
        tried.append("{} {}".format(candidate, why_not))
    fail("find a Python for @{}: {}; remedy: install python3.11 or newer, or name one in COLDSNAP_PYTHON".format(
        ctx.name,
        "; ".join(tried),
    ))

def _run(ctx, doing, command, remedy):
    done = ctx.execute(command, timeout = 1800, environment = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONNOUSERSITE": "1",
    })
    if done.return_code:
        fail("{} for @{}: {} ended with {}; remedy: {}\n{}{}".format(
            doing,
            ctx.name,
            command[0],
            done.return_code,
            remedy,
            done.stdout,
            done.stderr,
        ))
    return done.stdout

def _pip(ctx, lock):
    """The command that installs exactly what `lock` lists."""
    return ["venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", ctx.path(lock)]

def _install(ctx, lock):
    _run(ctx, "install the wheels of {}".format(lock), _pip(ctx, lock), "pip's own words below; a mirror is set with PIP_INDEX_URL")

def _install_torch(ctx):
    """The CPU build where pip's settings offer it, else the registry's with its CUDA wheels (5 GB).

    COLDSNAP_TORCH=cpu or cuda decides instead.
    """
    wanted = ctx.os.environ.get("COLDSNAP_TORCH", "auto")
    if wanted not in ["auto", "cpu", "cuda"]:
        fail("read COLDSNAP_TORCH for @{}: {} is not known; known are auto, cpu, cuda".format(ctx.name, repr(wanted)))
    if wanted == "cpu":
        _install(ctx, ctx.attr.torch_cpu)
    elif wanted == "cuda" or ctx.execute(_pip(ctx, ctx.attr.torch_cpu), timeout = 1800).return_code:
        _install(ctx, ctx.attr.torch_cuda)

def _python_environment_impl(ctx):
    # Resolving the labels first makes their files inputs, and restarts the fetch before anything is done.
    for lock in [ctx.attr.requirements, ctx.attr.torch_cpu, ctx.attr.torch_cuda, ctx.attr.at_start] + ctx.attr.also:
        if lock:
            ctx.path(lock)
    python = _interpreter(ctx)
    _run(
        ctx,
        "make a virtual environment",
        [python.executable, "-m", "venv", "venv"],
        "apt-get install python3-venv where the interpreter is Debian's own",
    )
    for lock in [ctx.attr.requirements] + ctx.attr.also:
        _install(ctx, lock)

    site = "venv/lib/python{}.{}/site-packages".format(*python.version)
    if ctx.attr.torch_cuda:
        _install_torch(ctx)

    freeze = _run(ctx, "list the packages", ["venv/bin/python", "-m", "pip", "freeze", "--all"], "see below")
    at_start = ctx.read(ctx.attr.at_start) if ctx.attr.at_start else ""
    if at_start:
        ctx.file("{}/{}".format(site, ctx.attr.at_start.name), at_start, executable = False)

    # The venv is no input of any action; this file is one, and stands for it.
    ctx.file("fingerprint.txt", python.text + "\n" + freeze + at_start)

    headers = ctx.path(python.include)
    if ctx.attr.native:
        if not ctx.path(python.include + "/Python.h").exists:
            fail("find Python.h of {} for @{} in {}: not there; remedy: apt-get install python3-dev where the interpreter is Debian's own".format(
                python.executable,
                ctx.name,
                python.include,
            ))
        ctx.symlink(headers, "include")
        ctx.symlink(site + "/nanobind", "nanobind")
        terms = _run(ctx, "find nanobind's terms", ["venv/bin/python", "-c", _NANOBIND_TERMS], "see below")
        ctx.file("LICENSE.txt", terms, executable = False)

    abi3 = python.version >= [3, 12]
    tag = "cp{}{}".format(*python.version)
    ctx.template("BUILD", ctx.attr._native_build if ctx.attr.native else ctx.attr._build, {
        "{abi}": "abi3" if abi3 else tag,
        "{defines}": '["Py_LIMITED_API=0x030C0000"]' if abi3 else "[]",
        "{platform}": _platform(python.glibc),
        "{python}": str(ctx.path("venv/bin/python")),
        "{requires}": ">=3.12" if abi3 else "=={}.{}.*".format(*python.version),
        "{suffix}": ".abi3.so" if abi3 else python.suffix,
        "{tag}": "cp312" if abi3 else tag,
    }, executable = False)

python_environment = repository_rule(
    implementation = _python_environment_impl,
    attrs = {
        "also": attr.label_list(allow_files = True, doc = "Locks of what comes on top of `requirements`."),
        "at_start": attr.label(allow_single_file = [".pth"], doc = "What the interpreter runs before anything else."),
        "native": attr.bool(doc = "Also give the interpreter's headers and nanobind, to compile extension modules."),
        "requirements": attr.label(mandatory = True, allow_single_file = True),
        "torch_cpu": attr.label(allow_single_file = True, doc = "Lock of torch's CPU build."),
        "torch_cuda": attr.label(allow_single_file = True, doc = "Lock of torch and its CUDA wheels."),
        "_build": attr.label(default = "//third_party/python:repo.BUILD"),
        "_native_build": attr.label(default = "//third_party/nanobind:repo.BUILD"),
    },
    environ = ["COLDSNAP_PYTHON", "COLDSNAP_TORCH"],
    doc = "A venv from hash-locked wheels.",
)

def _version_of_impl(ctx):
    text = ctx.read(ctx.attr.source)
    marker = 'VERSION = "'
    if marker not in text:
        fail("read the version from {}: no line {}...\"".format(ctx.attr.source, marker))
    version = text.split(marker)[1].split('"')[0]
    ctx.file("BUILD", "")
    ctx.file("defs.bzl", '"""Written by tools/repos/python.bzl."""\n\nVERSION = "{}"\n'.format(version))

version_of = repository_rule(
    implementation = _version_of_impl,
    attrs = {"source": attr.label(allow_single_file = True, mandatory = True)},
    doc = "The constant VERSION of a Python file, for BUILD files: a wheel's file name is fixed before anything runs.",
)
