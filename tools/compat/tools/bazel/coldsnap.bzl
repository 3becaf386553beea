"""The label that BUILD files used first; serves until none does."""

load("//tools/rules:coldsnap.bzl", _a = "coldsnap_cc_binary", _b = "coldsnap_cc_library", _c = "coldsnap_cc_test", _d = "coldsnap_gpu_test")

coldsnap_cc_binary = _a
coldsnap_cc_library = _b
coldsnap_cc_test = _c
coldsnap_gpu_test = _d
