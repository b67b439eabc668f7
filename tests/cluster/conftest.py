# SPDX-License-Identifier: Apache-2.0
"""Tests in virtual machines use what the component tests have."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "component"), str(HERE)]  # in this order: two are conftest

from cli_tools import tide  # noqa: E402, F401, fixtures
from conftest import build_dir, compiled, place, public_dir  # noqa: E402, F401


def pytest_runtest_logreport(report):
    """At once: a machine that has to be stopped says nothing at the end."""
    if report.failed:
        print(f"\n{report.longreprtext}\n{report.caplog}{report.capstdout[-2000:]}", flush=True)
