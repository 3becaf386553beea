"""Device code, through rules_cuda."""

load("@rules_cuda//cuda:defs.bzl", "cuda_library")

def coldsnap_cuda_library(name, copts = [], host_copts = [], **kwargs):
    """Kernels and the host code that launches them; a C++ library to what depends on it.

    Args:
        name: Name of the target.
        copts: Further options for nvcc.
        host_copts: Further options for the host compiler.
        **kwargs: As for cuda_library: srcs, hdrs, deps, local_defines, ptxasopts ...
    """
    cuda_library(
        name = name,
        copts = ["-std=c++20", "-Werror", "all-warnings"] + copts,
        # Not -Wextra -Werror: nvcc's own generated code goes through the host compiler too.
        host_copts = ["-fvisibility=hidden", "-Wall"] + host_copts,
        **kwargs
    )
