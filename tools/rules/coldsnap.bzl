"""What BUILD files load."""

load(":cc.bzl", _cc_binary = "coldsnap_cc_binary", _cc_library = "coldsnap_cc_library", _cc_test = "coldsnap_cc_test", _gpu_test = "coldsnap_gpu_test")

coldsnap_cc_binary = _cc_binary
coldsnap_cc_library = _cc_library
coldsnap_cc_test = _cc_test
coldsnap_gpu_test = _gpu_test
