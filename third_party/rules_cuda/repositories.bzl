"""Workspace part of the subset of rules_cuda; see README.md beside this file's source."""

def _local_cuda_impl(ctx):
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

alias(
    name = "cuda_headers",
    actual = "@cuda_toolkit//:headers",
)

alias(
    name = "cuda_runtime_static",
    actual = "@cuda_toolkit//:cudart_static",
)
""")

_local_cuda = repository_rule(implementation = _local_cuda_impl)

def rules_cuda_dependencies(toolkit_path = None):
    """Declares @local_cuda.

    Args:
        toolkit_path: Where the published rules find the toolkit; the subset always takes @cuda_toolkit.
    """
    if toolkit_path:
        fail("rules_cuda_dependencies: the subset takes the toolkit of @cuda_toolkit and no path, but was given " + toolkit_path)
    _local_cuda(name = "local_cuda")

def register_detected_cuda_toolchains():
    """Nothing to register: the subset's compiler is an implicit dependency of its rule."""
