"""What BUILD files load."""

load(":cc.bzl", _c_test = "coldsnap_c_test", _cc_binary = "coldsnap_cc_binary", _cc_library = "coldsnap_cc_library", _cc_shared_library = "coldsnap_cc_shared_library", _cc_test = "coldsnap_cc_test", _gpu_test = "coldsnap_gpu_test")
load(":cuda.bzl", _cuda_library = "coldsnap_cuda_library")
load(":extension.bzl", _py_extension = "coldsnap_py_extension")
load(":python.bzl", _py_binary = "coldsnap_py_binary", _py_library = "coldsnap_py_library", _py_test = "coldsnap_py_test")
load(":sbom.bzl", _component = "coldsnap_component", _sbom = "coldsnap_sbom")
load(":wheel.bzl", _py_wheel = "coldsnap_py_wheel")

coldsnap_c_test = _c_test
coldsnap_cc_binary = _cc_binary
coldsnap_cc_library = _cc_library
coldsnap_cc_shared_library = _cc_shared_library
coldsnap_cc_test = _cc_test
coldsnap_component = _component
coldsnap_cuda_library = _cuda_library
coldsnap_gpu_test = _gpu_test
coldsnap_py_binary = _py_binary
coldsnap_py_extension = _py_extension
coldsnap_py_library = _py_library
coldsnap_py_test = _py_test
coldsnap_py_wheel = _py_wheel
coldsnap_sbom = _sbom
