# SPDX-License-Identifier: Apache-2.0
"""A plug-in of pytest: runs one in so many of the tests that it has found, by a hash of their names.

TIDE_SUITE_ONE_IN: a number; TIDE_SUITE_SEED: a text, for others of them.
"""
import os
import zlib


def pytest_collection_modifyitems(config, items):
    one_in, seed = int(os.environ.get("TIDE_SUITE_ONE_IN", "1")), os.environ.get("TIDE_SUITE_SEED", "")
    chosen = [item for item in items if zlib.crc32((seed + item.nodeid).encode()) % one_in == 0]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
