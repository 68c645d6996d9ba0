# SPDX-License-Identifier: Apache-2.0
"""From a graph to an executable: the only place that knows all stages."""
