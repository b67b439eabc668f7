# SPDX-License-Identifier: Apache-2.0
"""Tests against a real control plane, one for each process of pytest; each test has a namespace."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "component"), str(HERE)]  # in this order: two are conftest

import control_plane  # noqa: E402
from daemon import eventually  # noqa: E402


@pytest.fixture(scope="session")
def plane():
    """Runs, and runs again after a test that ended some of its programs."""
    if control_plane.missing():
        pytest.skip(control_plane.missing())
    result = control_plane.ControlPlane()
    try:
        yield result.start()
    finally:
        result.end()


@pytest.fixture
def namespace(plane):
    """The name of a new one, deleted afterwards with all that is in it (in the background)."""
    name = plane.must("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})[
        "metadata"]["name"]
    eventually(lambda: plane.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
    yield name
    plane.must("DELETE", f"/api/v1/namespaces/{name}")
