# SPDX-License-Identifier: Apache-2.0
"""Tests with a real Slurm (`make check-slurm`): see bed.py."""
import pathlib

import pytest

import bed


@pytest.fixture(scope="session")
def cluster():
    why = bed.missing()
    if why:
        pytest.skip(why)
    made = bed.Cluster(cpus=2)
    yield made
    made.end()


@pytest.fixture(scope="session")
def fenced():
    why = bed.missing()
    if why or not pathlib.Path("/sys/fs/cgroup/cpuset/cpuset.cpus").exists():
        pytest.skip(why or "needs control groups v1")
    made = bed.Cluster(cpus=2, fenced=True)
    yield made
    made.end()


@pytest.fixture(scope="session")
def accounted():
    why = bed.missing(bed.ACCOUNTING)
    if why:
        pytest.skip(why)
    made = bed.Cluster(cpus=2, accounted=True)
    yield made
    made.end()


@pytest.fixture
def slurm(cluster):
    """The cluster without jobs, with the plugin as an administrator configures it."""
    cluster.configure()
    cluster.rest()
    yield cluster
    cluster.rest()
