# SPDX-License-Identifier: Apache-2.0
"""Every private symbol of TensorFlow that the elastic strategy uses is there, in each version."""

import ast
import json
import pathlib
import subprocess

import pytest

from program import ROOT, clean_env, tensorflow_pythons

PACKAGE = ROOT / "python/threadtide/tensorflow"
CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from threadtide.tensorflow import private
private.check_version()
print(json.dumps({"wrong": private.check_symbols(), "symbols": len(private.SYMBOLS)}))
try:
    private.check_version("2.15.1")
except private.UnsupportedTensorFlow as error:
    print(error)
"""


@pytest.mark.parametrize("python", tensorflow_pythons()[:2],
                         ids=lambda p: pathlib.Path(p).parent.parent.name.lstrip("."))
def test_symbols_are_there_and_other_versions_are_refused(python):
    if not pathlib.Path(python).exists():
        pytest.skip(f"no TensorFlow at {python}")
    done = subprocess.run([python, "-c", CHECK, str(ROOT / "python")], capture_output=True,
                          text=True, env=clean_env(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL=2))
    assert done.returncode == 0, done.stderr[-2000:]
    found, refusal = done.stdout.splitlines()[-2:]
    found = json.loads(found)
    assert found["wrong"] == [] and found["symbols"] > 10
    assert "2.15.1" in refusal and "2.21" in refusal


NEWS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from threadtide.tensorflow import members

class Source:
    interval_s, reports = 3600, threading.Semaphore(0)
    def exchange(self, report):
        self.reports.release()

channel = members.Channel(Source(), dict, None, print)
assert Source.reports.acquire(timeout=30)
channel.tell()
assert Source.reports.acquire(timeout=30)
channel.close()
assert Source.reports.acquire(timeout=30)
"""


def test_the_controller_is_told_news_at_once():
    subprocess.run([tensorflow_pythons()[0], "-c", NEWS, str(ROOT / "python")], check=True, timeout=60,
                   env=clean_env(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL=2))


def test_private_symbols_are_used_in_one_file_only():
    names = {node.attr for node in ast.walk(ast.parse((PACKAGE / "private.py").read_text()))
             if isinstance(node, ast.Attribute)}
    private = {name for name in names if name.startswith("_") and not name.endswith("__")}
    assert {"_handle", "_num_ps"} <= private
    for path in PACKAGE.glob("*.py"):
        if path.name == "private.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            assert getattr(node, "attr", None) not in private, (path, node.attr)
            if isinstance(node, ast.ClassDef):  # from a class of theirs everything would be inherited
                bases = [ast.unparse(base) for base in node.bases]
                assert not any(b.startswith(("tf.", "keras.")) for b in bases), path
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [getattr(node, "module", None) or ""] + [a.name for a in node.names]
                assert not any(n.startswith(("tensorflow.python", "keras.src")) for n in names), path
