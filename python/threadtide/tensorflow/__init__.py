# SPDX-License-Identifier: Apache-2.0
"""Elastic training with TensorFlow: parameter servers and workers that come and go.

What of it needs TensorFlow imports it when it is used first.
"""

from threadtide.tensorflow.local import LocalCluster
from threadtide.tensorflow.nodes import Event, NodeLinks

__all__ = ["Event", "LocalCluster", "NodeLinks"]
