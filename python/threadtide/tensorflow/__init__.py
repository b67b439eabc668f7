# SPDX-License-Identifier: Apache-2.0
"""Elastic training with TensorFlow: parameter servers and workers that come and go.

What of it needs TensorFlow imports it when it is used first.
"""

import importlib

from threadtide.tensorflow.local import LocalCluster
from threadtide.tensorflow.nodes import Event, NodeLinks

_LAZY = {
    "ElasticParameterServerStrategy": "strategy",
    "ElasticCoordinator": "training",
    "Examples": "data",
    "step_seed": "steps",
    "UnsupportedTensorFlow": "private",
}

__all__ = ["Event", "LocalCluster", "NodeLinks", *_LAZY]


def __getattr__(name):
    if name in _LAZY:
        module = importlib.import_module("threadtide.tensorflow." + _LAZY[name])
        globals()[name] = getattr(module, name)
        return globals()[name]
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
