# SPDX-License-Identifier: Apache-2.0
"""The project's scripts: run, or loaded to be called."""
import importlib.util
import subprocess

import pytest

from conftest import GUARD_S, ROOT


def script(name, *arguments):
    return subprocess.run([ROOT / "scripts" / name, *arguments], capture_output=True, text=True,
                          timeout=GUARD_S)


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def check(tmp_path):
    loaded = module("check")
    loaded.OUT = loaded.LOGS = tmp_path
    return loaded
