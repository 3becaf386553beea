"""For tests that somebody starts by pytest itself: folders of their own in the place of the user's.

Bazel's launcher (tools/rules/python.bzl) does the same for each of its tests, which don't see this file. A profile, a
quarantine or a default store of the user's would decide what a test gets.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

_PLACES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
_NAMED = ("COLDSNAP_PROFILE", "COLDSNAP_RECEIPT_DIR", "COLDSNAP_STATE_DIR", "COLDSNAP_STORE", "COLDSNAP_TRUST_DIR")


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="coldsnap-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ.update({name: os.path.join(folder, name) for name in _PLACES})
    for name in _NAMED:
        os.environ.pop(name, None)
