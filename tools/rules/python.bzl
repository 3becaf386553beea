"""Python targets over the locked environments, and extension modules over nanobind.

Bazel's own Python rules are not used: the stub of Bazel 4 starts with `/usr/bin/env python`, which Debian does not
have, and Bazel 8 has none built in. These need only a bash launcher that sets PYTHONPATH to the runfiles and hands
over to the environment's interpreter.

Imports start at two roots: `py/` (so `import coldsnap`) and the top of the repository (so `import bench.harness`).
"""

ToolsetInfo = provider(
    doc = "A Python environment made by tools/repos/python.bzl.",
    fields = {
        "abi": "ABI tag of a wheel with an extension module.",
        "fingerprint": "File that changes when the environment does.",
        "platform": "Platform tag of such a wheel, without the processor.",
        "python": "Path of the interpreter.",
        "requires": "Requires-Python of such a wheel.",
        "suffix": "File name ending of an extension module.",
        "tag": "Python tag of such a wheel.",
    },
)

PySourcesInfo = provider(
    doc = "What a target adds to the packages below py/.",
    fields = {
        "placed": "depset of structs (path, file): a file that stands somewhere else in py/ than in its folder.",
        "sources": "depset of Python sources and of data that stands beside them.",
    },
)

def _toolset_impl(ctx):
    return [
        DefaultInfo(files = depset([ctx.file.fingerprint]), runfiles = ctx.runfiles([ctx.file.fingerprint])),
        ToolsetInfo(
            abi = ctx.attr.abi,
            fingerprint = ctx.file.fingerprint,
            platform = ctx.attr.platform,
            python = ctx.attr.python,
            requires = ctx.attr.requires,
            suffix = ctx.attr.suffix,
            tag = ctx.attr.tag,
        ),
    ]

python_toolset = rule(
    implementation = _toolset_impl,
    attrs = {
        "abi": attr.string(mandatory = True),
        "fingerprint": attr.label(allow_single_file = True, mandatory = True),
        "platform": attr.string(mandatory = True),
        "python": attr.string(mandatory = True),
        "requires": attr.string(mandatory = True),
        "suffix": attr.string(mandatory = True),
        "tag": attr.string(mandatory = True),
    },
    doc = "Stands in each environment's BUILD file.",
)

def _collect(ctx, own):
    """The sources and runfiles of a target with srcs, data and deps."""
    with_sources = [dep[PySourcesInfo] for dep in ctx.attr.deps if PySourcesInfo in dep]
    placed = depset(transitive = [info.placed for info in with_sources])
    sources = depset(own, transitive = [info.sources for info in with_sources])
    runfiles = ctx.runfiles(own + ctx.files.data)
    for dep in ctx.attr.deps + ctx.attr.data:
        runfiles = runfiles.merge(dep[DefaultInfo].default_runfiles)
    return PySourcesInfo(placed = placed, sources = sources), runfiles

def _library_impl(ctx):
    info, runfiles = _collect(ctx, ctx.files.srcs)
    return [DefaultInfo(files = depset(ctx.files.srcs), runfiles = runfiles), info]

_COMMON = {
    "data": attr.label_list(allow_files = True),
    "deps": attr.label_list(providers = [[PySourcesInfo], [DefaultInfo]]),
    "srcs": attr.label_list(allow_files = [".py", ".pyi", ".typed"]),
}

_py_library = rule(
    implementation = _library_impl,
    attrs = _COMMON,
    provides = [PySourcesInfo],
)

# Runfiles are looked for where Bazel puts them: beside the program, around it (a program that is another's tool or
# data), and where the test runner says.
_LAUNCHER = """#!/usr/bin/env bash
# Written by tools/rules/python.bzl.
set -euo pipefail
self="$0"
[[ $self == /* ]] || self="$PWD/$self"
if [[ -d $self.runfiles ]]; then
  runfiles="$self.runfiles"
elif [[ $self == *.runfiles/* ]]; then
  runfiles="${self%%.runfiles/*}.runfiles"
elif [[ -n ${RUNFILES_DIR:-${TEST_SRCDIR:-}} ]]; then
  runfiles="${RUNFILES_DIR:-$TEST_SRCDIR}"
else
  echo "find the runfiles of $self: neither beside it nor around it, and RUNFILES_DIR is not set; remedy: start it with 'bazel run'" >&2
  exit 1
fi
root="$runfiles/%{workspace}"
export RUNFILES_DIR="$runfiles" RUNFILES_ROOT="$root"
# COVERAGE_SITE is the folder with which //tools/coverage counts lines.
export PYTHONPATH="$root/py:$root${COVERAGE_SITE:+:$COVERAGE_SITE}"
export PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
python=%{python}
if [[ ! -x $python ]]; then
  echo "start $self: its interpreter $python is gone; remedy: build it again" >&2
  exit 1
fi
%{environment}
"""

_RUN_PROGRAM = """
# Paths on the command line mean what they mean to the caller.
[[ -z ${BUILD_WORKING_DIRECTORY:-} ]] || cd "$BUILD_WORKING_DIRECTORY"
exec "$python" "$root/%{main}" "$@"
"""

# test.xml in JUnit's form gives Bazel, and .ci/run, the single cases. --test_filter arrives as TESTBRIDGE_TEST_ONLY.
_RUN_TESTS = """
export HOME="$TEST_TMPDIR" HYPOTHESIS_STORAGE_DIRECTORY="$TEST_TMPDIR/hypothesis"
export XDG_CACHE_HOME="$TEST_TMPDIR/cache" XDG_STATE_HOME="$TEST_TMPDIR/state" XDG_CONFIG_HOME="$TEST_TMPDIR/config"
filter=()
[[ -z ${TESTBRIDGE_TEST_ONLY:-} ]] || filter=(-k "$TESTBRIDGE_TEST_ONLY")
cd "$root"
exec "$python" -m pytest -p no:cacheprovider --import-mode=importlib --rootdir="$root" -c "$root/pytest.ini" \\
  --basetemp="$TEST_TMPDIR/pytest" --junit-xml="${XML_OUTPUT_FILE:-$TEST_TMPDIR/test.xml}" -ra "${filter[@]}" "$@" %{tests}
"""

def _quote(text):
    return "'" + text.replace("'", "'\\''") + "'"

def _launch(ctx, body):
    toolset = ctx.attr.toolset[ToolsetInfo]
    info, runfiles = _collect(ctx, ctx.files.srcs)
    exports = [
        "export {}={}".format(name, _quote(ctx.expand_location(value, ctx.attr.data)))
        for name, value in ctx.attr.environment.items()
    ]
    text = _LAUNCHER.replace("%{workspace}", ctx.workspace_name)
    text = text.replace("%{python}", _quote(toolset.python)).replace("%{environment}", "\n".join(exports))
    launcher = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(launcher, text + body, is_executable = True)
    runfiles = runfiles.merge(ctx.runfiles([toolset.fingerprint]))
    return [DefaultInfo(executable = launcher, files = depset([launcher]), runfiles = runfiles), info]

def _binary_impl(ctx):
    return _launch(ctx, _RUN_PROGRAM.replace("%{main}", ctx.file.main.short_path))

def _test_impl(ctx):
    files = [_quote(f.short_path) for f in ctx.files.srcs if f.basename.startswith("test_") or f.basename.endswith("_test.py")]
    if not files:
        fail("{}: none of srcs is named test_*.py or *_test.py, so pytest would run nothing".format(ctx.label))
    providers = _launch(ctx, _RUN_TESTS.replace("%{tests}", " ".join(files)))
    runfiles = providers[0].default_runfiles.merge(ctx.runfiles([ctx.file._pytest_ini]))
    return [
        DefaultInfo(executable = providers[0].files.to_list()[0], files = providers[0].files, runfiles = runfiles),
    ] + providers[1:]

_LAUNCHED = dict(
    _COMMON,
    environment = attr.string_dict(doc = "Environment variables; $(rootpath ...) of data works, below $RUNFILES_ROOT."),
    toolset = attr.label(mandatory = True, providers = [ToolsetInfo]),
)

_py_binary = rule(
    implementation = _binary_impl,
    attrs = dict(_LAUNCHED, main = attr.label(allow_single_file = [".py"], mandatory = True)),
    executable = True,
)

_py_test = rule(
    implementation = _test_impl,
    attrs = dict(_LAUNCHED, _pytest_ini = attr.label(allow_single_file = True, default = "//:pytest.ini")),
    test = True,
)

_ENVIRONMENTS = {
    "base": "@pyenv//:env",
    "coverage": "@coverage_env//:env",
    "engine": "@pyenv_engine//:env",
    "lint": "@lint_env//:env",
    "peers": "@pyenv_peers//:env",
    "sbom": "@pyenv_sbom//:env",
    "torch": "@pyenv_torch//:env",
}

def _toolset(name, env):
    if env not in _ENVIRONMENTS:
        fail("{}: env = {} is not known; known are {}".format(name, repr(env), ", ".join(_ENVIRONMENTS.keys())))
    return _ENVIRONMENTS[env]

def coldsnap_py_library(name, **kwargs):
    """Python modules: srcs, deps, data. `import` sees them from py/ and from the top of the repository."""
    _py_library(name = name, **kwargs)

def coldsnap_py_binary(name, srcs, main = None, env = "base", **kwargs):
    """A program: runs `main` (the only source by default) in the folder it was called from.

    Args:
        name: Name of the target.
        srcs: Sources.
        main: The source that is run.
        env: "base", "torch" for the environment that has torch, "peers" for torch and the loaders of others, or
            "engine" for torch and vLLM on the CPU.
        **kwargs: data, deps, environment (a dict of variables), args, tags, visibility ...
    """
    _py_binary(name = name, srcs = srcs, main = main or srcs[0], toolset = _toolset(name, env), **kwargs)

def coldsnap_py_test(name, srcs, env = "base", size = "small", **kwargs):
    """pytest over those of srcs that are named test_*.py or *_test.py.

    Args:
        name: Name of the target.
        srcs: Test files, helpers and conftest.py.
        env: "base", "torch" for the environment that has torch, "sbom" for the schema of a bill of materials, or
            "engine" for torch and vLLM on the CPU.
        size: As for every test.
        **kwargs: data, deps, environment (a dict of variables), args (for pytest), tags ...
    """
    _py_test(name = name, srcs = srcs, size = size, toolset = _toolset(name, env), **kwargs)
