# SPDX-License-Identifier: Apache-2.0
"""Schedules of the family "gpu": loops bound to blocks and threads."""
