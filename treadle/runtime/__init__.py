# SPDX-License-Identifier: Apache-2.0
"""Running compiled code: arrays, modules, executors, and the native library beneath them."""
