# SPDX-License-Identifier: Apache-2.0
"""Arrays, modules and executors on top of the native runtime."""
