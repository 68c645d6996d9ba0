# SPDX-License-Identifier: Apache-2.0
"""How large code may grow, how much a compilation may look at and keep: limits of the compiler.

Code is limited because LLVM takes longer than linearly for a block of straight code, and because
what does not fit the cache of decoded instructions (about 4,000 on current CPUs) runs slower than
the loop it was. None of these numbers says what a machine does: facts of machines stand in
`treadle.target.machine`, what follows from them in `treadle.cost`.
"""

from __future__ import annotations

# ---- code of loops -------------------------------------------------------------------------------

UNROLLED_STATEMENTS = 8192
"""Statements an unrolled loop may grow to before it stays a loop."""

VECTOR_LANES = 64
"""Lanes of one vector statement: LLVM cuts it into registers, each an instruction of its own. A
longer vectorized loop becomes a loop over vectors."""

LOOP_PARTS = 4
"""Parts that a loop is cut into where conditions inside change: each is a copy of its body."""

GUARDED_PARTS = 3
"""Parts that a loop is cut into at guards: the copies inside of them multiply."""

GUARDS = 8
"""Guards of one body that are looked at for a place to cut; bodies with more stay whole."""

REMAINDER_CASES = 16
"""Lengths of an unrolled remainder that each have code of their own; a remainder that may have more
is one loop of symbolic extent."""

# ---- code of prefetches --------------------------------------------------------------------------

UNROLLED_PREFETCHES = 64
"""Prefetches of one iteration up to which they are written one after the other."""

PANELS_WITH_LAST = 8
"""Panels from which the steps of the last one have no hints."""

TILES_OF_PANEL = 8
"""Tiles over which the prefetches of the next panel are spread where their number is not known:
each has a share of the panel in its code, and with more of them, lines are fetched twice."""

# ---- code of templates ---------------------------------------------------------------------------

RESIZE_TERMS = 4
"""Terms of a filter that resizes, up to which they are one expression and not a reduction."""

SAMPLE_TERMS = 16
"""Terms of a sample between pixels, up to which they are one expression: those of a bicubic one."""

ROW_TERMS = 8
"""Terms of a reduction of rows that are combined without a loop by default."""

MOST_ROW_TERMS = 64
"""Terms of a reduction of rows that a tuner may combine without a loop."""

POOL_TERMS = 16
"""Elements of a pooling window that are combined without a loop by default."""

MOST_POOL_TERMS = 64
"""Elements of a pooling window that a tuner may combine without a loop."""

POOL_WINDOWS = 4
"""Pooling windows of a row that are combined together, each with its elements written out: those
next to each other share what they read."""

REMAINDER_WIDTH = 8
"""Positions of a tile of a convolution of any width: the rest of a row may have any length below,
and each has code of its own."""

DEPTHWISE_WIDTH = 4
"""Positions of a tile of a depthwise convolution of any width, whose window is unrolled too."""

# ---- what is compared and looked at --------------------------------------------------------------

TILE_VECTORS = 4
"""Vectors of the tiles that are compared, and of a panel of weights: with so many, loads of
broadcast values no longer bound a tile on any CPU, and each number of vectors of a remainder has
code of its own."""

ROW_VECTORS = 8
"""Vectors of a panel of weights that are compared for one row of values: as many sums as keep the
units of any CPU busy."""

TILE_ROWS = 4
"""Rows of an image that the tiles cover that are compared; a remainder in height and one in width
multiply their code."""

BANDS = 4096
"""Sizes of a band of rows that are compared, whatever the image."""

PANEL_GROUPS = (1, 2, 4, 8)
"""Panels of weights that meet a band's data before the next: with more of them the data is read
less often, but their sums take more of level 2, and there are fewer tasks."""

PLACES_OF_BLOCK = 32
"""Results of a plane that a block of a reduction adds to at least, where it is cut: a tile of them
reads the block's weights from far, the others find them in level 1."""

LEAST_STEPS_OF_BLOCK = 512
"""Steps of a block of a product's reduction at least, where it is cut: a tile of sums is read and
written for each."""

BLOCK_SIZES = 4
"""How many times smaller than the largest that fits a cache the blocks of rows may be that are
compared: smaller ones would read weights more often than they need."""

BLOCK_COUNTS = 32
"""Numbers of blocks of rows that are compared for a chain of products, whatever the rows."""

BLOCK_TILES, WAITING_BLOCK_TILES = 16, 12
"""The least tiles of rows in a block of level 2: each fetches its part of the next panel, and fewer
would wait for it. Fewer do where they would wait for level 3 else."""

CHAINED_PRODUCTS = 4
"""Products of one kernel, each of which reads the one before: LLVM's time for a kernel grows with
them, and most of what is saved is saved by the first."""

GROUP_ROWS, GROUP_COLUMNS = (1, 2, 4), (2, 3, 4, 5, 6, 7, 8)
"""Rows and columns of Winograd tiles whose groups are compared where the size of an image is not
known: groups of any other size would fill images up with more that nobody reads."""

IMAGE_PARTS = 8
"""Parts of an image that are compared for Strassen's algorithm: each reads all weights."""

RULE_ROUNDS = 12
"""Visits of a whole graph by a table of rules; tables converge in two or three."""

RANGE_DEPTH = 16
"""Operators that are walked back in search of the range of a value."""

ACTIVATION_DEPTH = 6
"""Operators between the value and the result of an activation that is recognised."""

SCALE_DENOMINATOR = 64
"""Denominator of a scale up to which a resized dynamic size has a closed form: longer ones would
make every index of the result long."""

# ---- memory of a run -----------------------------------------------------------------------------

ARENA_GROWTH = 0.04
"""The part of the weights that an arena may take more than it must where runs are faster for it."""

ARENA_CELLS = 8192
"""Cells of an arena whose last uses are told apart: each step of a plan looks at all of them."""

# ---- kernels -------------------------------------------------------------------------------------

GROUP_CALLS = 64
"""Calls that are fused into one kernel: LLVM's time for one kernel bounds that of a model whose
kernels are compiled at the same time."""

ATTENTION_CALLS = 16
"""Calls between the two products of an attention that are fused with them."""

NAMED_CALLS = 6
"""Operators that a kernel's name spells out; of more, those that compute."""

# ---- kernels for GPUs ----------------------------------------------------------------------------

DEVICE_THREADS = 256
"""Threads of a block at most where nothing that they share decides: enough to hide what memory
takes, few enough that a multiprocessor holds several blocks."""

TWICE_HELD = 256
"""Threads of a block up to which a multiprocessor has registers for two of them, whatever a kernel
would take: one alone waits for memory."""

DEVICE_VECTORS = (8, 16)
"""Bytes that a thread moves at once: the vectors that the languages of GPUs have words for."""

DEVICE_LANES = 4
"""Elements that a thread moves at once at most."""

DEVICE_HELD = 64
"""Elements of the next step that a thread holds in registers while it computes one."""

DEVICE_AHEAD = 16
"""Elements of the next step for which a thread has registers left next to a tile of 8 x 8 sums."""

DEVICE_AHEAD_THREADS = 128
"""Threads of a block from which fetching ahead pays: many smaller ones hide what memory takes."""

DEVICE_STEPS = 16
"""Steps of a product at most that a block fetches at once: its loop over them is unrolled."""

LEAST_DEVICE_STEPS = 8
"""Steps of a product from which a block fetches them together."""

LEAST_DEVICE_ROWS = 8
"""Rows of an attention from which a block computes several at once: half of its smallest tile."""

GRID_BLOCKS = 65535
"""Blocks along the second and third axis of a grid, in every language."""

BLOCK_ROW_TERMS = 64
"""Terms of a row that is worth a block of its own."""

BLOCK_CHAIN_TERMS = 4
"""Terms of a row that is, where several stages go through it: each would be a launch."""

THREAD_TERMS = 4
"""Terms of a row for which one more thread is worth its share of a block."""

LAST_TERMS = 16
"""Partial results of a row that each thread combines by itself: fewer would take one more round of
waiting for each other."""

SUM_WIDTH = 32
"""Neighbouring elements that a block sums with several threads each: a warp reads them at once."""

SUM_TERMS = 128
"""Terms of a sum from which several threads share it."""

SUM_ELEMENTS = 512
"""Elements for each multiprocessor that are too few to keep it busy with a thread each."""

TYPICAL_ROWS = 256
"""Rows or columns of a product for which a run decides them."""

REDUCED_CHANNELS = 1024
"""Channels from which on a convolution may be a sum of convolutions of some of them: the sums of a
part are written, and read again by the next."""

REDUCED_POSITIONS = 128
"""Positions of a result from which on weights are read by so many tiles that it pays."""

# ---- memory of a compilation ---------------------------------------------------------------------

FOLDED_BYTES = 64 << 20
"""Bytes of the largest result that folding makes, unless the operands are larger."""

ALL_FOLDED_BYTES = 512 << 20
"""Bytes by which folding may grow one graph altogether."""

FOLDED_FLOPS = 4 << 30
"""Floating point operations of the dearest call that is folded: a second or so of NumPy."""

KEPT_BYTES = 1 << 20
"""Bytes of a folded result up to which it is kept for equal calls although it takes memory."""

COMPARED_ELEMENTS = 16
"""Elements of constants that are compared by value, larger ones by identity."""

DEFERRED_BYTES = 1 << 20
"""Bytes of weights from which scaled ones are made again where they are packed, not kept
meanwhile."""

FREE_GROWTH_BYTES = 64 << 10
"""Bytes by which the weights of any model may grow: few compared with a small one's images."""

KERNEL_BYTES = 9 << 10
"""Bytes of code in an artifact, about, for each different convolution or product: its kernel and a
share of those that stand between them."""

CALL_BYTES = 1 << 10
"""Bytes of an artifact's plan, about, for each call of a convolution or product."""

WORKERS_BYTES = 16 << 20
"""Bytes of weights from which on they and idle compile workers are not in memory together."""

MOVED_BYTES = 8 << 20
"""Small weights that are moved onto huge pages before the memory they lay in is given back."""

TRANSFORMED_BYTES = 16 << 20
"""Bytes of weights that a run may transform at once: its memory grows by them."""

KERNELS_OF_PROCESS = 40
"""Kernels that are worth one more process which makes their source texts: some thirty megabytes."""
