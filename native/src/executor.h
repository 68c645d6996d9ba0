/* SPDX-License-Identifier: Apache-2.0 */
/* What an executor holds; shared by the files that build it and that run it. */
#ifndef TREADLE_EXECUTOR_H_
#define TREADLE_EXECUTOR_H_

#include <pthread.h>

#include "internal.h"

/* One instruction, ready to run. */
typedef struct {
  td_kernel kernel; /* NULL: copy buffers[0] to buffers[1] */
  void** buffers;   /* one pointer per argument */
  int64_t* dims;    /* NULL when there is none */
  size_t bytes;     /* of a copy, or of indices */
  bool is_random;   /* buffers[0] is given a new key */
  size_t num_extents, index_bytes; /* indices that must be below the extents in `dims`; else 0 */
} td_step;

/* Where the keys of random numbers come from: this executor's, or that of the one around a body. */
typedef struct {
  uint64_t next;
  int64_t process;  /* that `next` was chosen in; 0: not yet */
  bool is_chosen;   /* by the user, with td_executor_seed */
} td_random;

/* One input or output: where its pointer goes, and its memory inside the executor. */
typedef struct {
  const td_value* value;
  void*** slots; /* the places in the steps' buffers that hold its pointer */
  size_t num_slots;
  void* bound;      /* the pointer they hold now */
  void* own;        /* the executor's buffer, made on first need */
  size_t own_bytes; /* of that buffer */
  bool has_result;
} td_binding;

typedef struct td_dynamic td_dynamic;         /* dynamic.c */
typedef struct td_block_state td_block_state; /* blocks.c */

struct td_executor {
  pthread_mutex_t mutex;
  _Atomic uint32_t process; /* the lock holds for this one, see td_process */
  _Atomic bool is_held;     /* a thread has the lock and may be changing what follows */
  td_executor* outer;       /* the one that the same thread was running when it took the lock */
  td_model* model;
  td_plan plan; /* of the model, or of one of its bodies */
  td_env env;
  size_t constant_bytes;
  td_random own_random, *random;
  bool profiling;
  td_observer observer; /* NULL: nobody watches */
  void* observer_context;

  /* The state of runs, made from the model: td_executor_renew makes it anew. */
  td_zone zone; /* everything below that is not memory for tensors */
  td_step* steps;
  td_binding* inputs;
  td_binding* outputs;
  void* arena;
  bool is_lent; /* the arena, and the buffers of inputs and outputs in it, are the caller's */
  td_dynamic* dynamic; /* NULL for a static plan */
  td_executor** bodies; /* of branches and loops, one per plan inside the plan */
  td_block_state** blocks; /* by instruction; NULL where it is no branch or loop */
  uint64_t *profile_ns, *profile_runs;
};

/* ---- executor.c ------------------------------------------------------------------------------ */

/* Makes an executor of a model, or of one of the bodies in its plan. It is one more user of the
 * model. */
int32_t td_executor_make(td_model* model, const td_plan* plan, td_executor** executor,
                         td_error* error);
/* Makes the first executor of a model that is being opened, and starts the threads of its runs. */
int32_t td_executor_open(td_model* model, td_executor** executor, td_error* error);
/* Makes one that works in `memory`, of td_lent_bytes bytes, and uses one thread. */
int32_t td_executor_make_in(td_model* model, void* memory, td_executor** executor,
                            td_error* error);
/* The bytes of arena, inputs and outputs of a static plan, however the memory is aligned; SIZE_MAX
 * if that is more than there can be. */
size_t td_lent_bytes(const td_plan* plan);
/* Gives an executor new state; the one it has is left alone. */
int32_t td_executor_renew(td_executor* e, td_error* error);

/* ---- run.c ----------------------------------------------------------------------------------- */

/* Takes the executor for this thread alone; fails only after a fork, for lack of memory. */
int32_t td_executor_lock(td_executor* e, td_error* error);
void td_executor_unlock(td_executor* e);
/* True when another thread was changing it in the process that this one was forked off. */
bool td_executor_is_lost(const td_executor* e);

bool td_is_aligned(const void* pointer);
/* True when kernels may read an input of the model where it lies. */
bool td_is_in_place(const td_executor* e, const void* input);
/* True when two pieces of memory share a byte. */
bool td_overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes);
/* Runs the instructions [begin, end). */
int32_t td_run_steps(td_executor* e, uint32_t begin, uint32_t end, td_error* error);

/* ---- random.c -------------------------------------------------------------------------------- */

uint64_t td_random_key(td_random* state);

/* ---- indices.c ------------------------------------------------------------------------------- */

/* True when all indices of a step that checks them are inside its extents. */
bool td_indices_fit(const td_env* env, td_step* s);
/* The error of instruction i, whose indices do not fit. */
int32_t td_refuse_indices(const td_executor* e, uint32_t i, td_error* error);

/* ---- dynamic.c: plans whose sizes each run decides ------------------------------------------- */

/* `base` holds the pointers of constants, by value. */
int32_t td_dynamic_create(td_executor* e, void** base, td_error* error);
void td_dynamic_free(td_executor* e);
int32_t td_dynamic_run(td_executor* e, const td_tensor* inputs, const td_buffer* outputs,
                       td_error* error);
/* Completes what is known of an output by what the last run made it. */
int32_t td_dynamic_result(const td_executor* e, uint32_t index, td_tensor_info* info,
                          td_error* error);
/* Bytes of working memory now. */
size_t td_dynamic_arena_bytes(const td_executor* e);

/* The sizes that a body is given, to be set before it runs. */
int64_t* td_dynamic_given(const td_executor* e);
/* An extent as it is now. */
int64_t td_dynamic_extent(const td_executor* e, td_extent extent);
/* The shape of a value as it is now. */
const int64_t* td_dynamic_shape(const td_executor* e, uint32_t v);
/* Completes what is known of a value by what the run that goes on made it. */
void td_dynamic_type(const td_executor* e, uint32_t v, td_tensor_info* info);
/* What the last run left of output `index`. */
td_tensor td_dynamic_output(const td_executor* e, uint32_t index, size_t* bytes);
/* Exchanges the memory that an output lies in for other memory (or none). */
void td_dynamic_swap(td_executor* e, uint32_t index, void** memory, size_t* bytes);
/* Gives a size its number. */
void td_dynamic_set_size(td_executor* e, uint32_t k, int64_t number);

/* ---- blocks.c: branches and loops ------------------------------------------------------------ */

int32_t td_blocks_create(td_executor* e, td_error* error);
void td_blocks_free(td_executor* e);
/* Runs the branch or loop that is instruction i and gives its sizes their numbers. */
int32_t td_block_run(td_executor* e, uint32_t i, td_error* error);
/* Where result `index` of instruction i lies; an error unless it has that shape. */
int32_t td_block_result(const td_executor* e, uint32_t i, uint32_t index, const int64_t* shape,
                        const void** data, td_error* error);

#endif /* TREADLE_EXECUTOR_H_ */
