# SPDX-License-Identifier: Apache-2.0
"""Chart and manifests of the package tide-kube on a real control plane, by Helm and by kubectl."""
import os
import subprocess
import sys

import pytest

from conftest import ROOT

LIMIT_S = 600


def test_helm_installs_upgrades_and_removes_the_packaged_chart(packages, tmp_path):
    """The tests that CI has for the source tree, in a process of their own: both folders have a conftest."""
    share = packages.unpack(tmp_path, "tide-kube") / "usr/share/threadtide"
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", ROOT / "tests/kube/test_manifests.py"],
                          env={**os.environ, "TIDE_MANIFESTS": str(share)}, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S,
                          check=False)
    print(done.stdout)
    assert done.returncode == 0
    if "test_the_chart_installs_upgrades_and_leaves_the_trainings_when_it_goes PASSED" not in done.stdout:
        pytest.skip("needs Kubernetes and Helm (scripts/setup.sh kube)")
