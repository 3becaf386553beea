"""The Python rules built into Bazel, under the names of rules_python. coldsnap's own targets don't use them."""

py_binary = native.py_binary
py_library = native.py_library
py_runtime = native.py_runtime
py_test = native.py_test
