# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch, as torch.export and torch.compile list them, as graph modules."""
