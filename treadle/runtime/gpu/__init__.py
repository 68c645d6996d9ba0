# SPDX-License-Identifier: Apache-2.0
"""GPUs: drivers behind one protocol, device memory, kernels and models that run there."""
