# SPDX-License-Identifier: Apache-2.0
"""From LLVM's object files to a shared object, without a linker; see docs/design/linking.md."""
