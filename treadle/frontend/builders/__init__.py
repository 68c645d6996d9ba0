# SPDX-License-Identifier: Apache-2.0
"""Builders: plain records and graph nodes in, graph nodes out; shared by all importers."""
