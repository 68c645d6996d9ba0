/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the runtime share among themselves; nothing here is public. */
#ifndef TREADLE_INTERNAL_H_
#define TREADLE_INTERNAL_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle.h"

#define TD_ALIGNMENT ((size_t)64)
#define TD_HUGE_PAGE ((size_t)2 << 20)
#define TD_SMALLEST_PAGE ((size_t)4096)
#define TD_MAX_THREADS 512
#define TD_MAX_NDIM 32

/* What is called after this in the same function has its frames from the start of a page down, so
 * that those of up to a page lie in one. A vector across two takes some twenty cycles each time it
 * is written and read again, where a stack begins is drawn for each process, and kernels keep some
 * vectors there: without this one process of 85 runs a convolution 1.4 times as long. */
#define TD_FRAMES_FROM_PAGE()                                                                 \
  do {                                                                                        \
    uintptr_t here_ = (uintptr_t)__builtin_frame_address(0);                                  \
    char* volatile skipped_ = __builtin_alloca(here_ % TD_SMALLEST_PAGE + sizeof here_);      \
    (void)skipped_;                                                                           \
  } while (0)

/* ---- error.c --------------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define TD_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define TD_PRINTF(text, first)
#endif

/* Fills `error` (if any) and returns `code`, a td_status. */
int32_t td_fail(td_error* error, int32_t code, const char* format, ...) TD_PRINTF(3, 4);

/* Adds the next action to an error. Returns the error's code. */
int32_t td_hint(td_error* error, int32_t code, const char* format, ...) TD_PRINTF(3, 4);

/* ---- zone.c: memory released all at once ----------------------------------------------------- */

typedef struct td_zone_block td_zone_block;

typedef struct {
  td_zone_block* blocks;
  size_t used; /* bytes of the newest block */
} td_zone;

/* Zeroed memory aligned for any type; NULL when there is none left. */
void* td_zone_alloc(td_zone* zone, size_t count, size_t item_bytes);
char* td_zone_text(td_zone* zone, const char* text);
void td_zone_free(td_zone* zone);

/* Names with positions, sorted for look-up. */
typedef struct {
  const char* name;
  size_t position;
} td_name;

void td_names_sort(td_name* names, size_t count);
/* The entry of that name, or NULL. */
const td_name* td_names_find(const td_name* names, size_t count, const char* name);
/* A name that occurs twice, or NULL. */
const char* td_names_duplicate(const td_name* names, size_t count);

/* ---- json.c ---------------------------------------------------------------------------------- */

typedef enum {
  TD_JSON_NULL,
  TD_JSON_BOOL,
  TD_JSON_INTEGER,
  TD_JSON_REAL, /* a number with fraction or exponent, or beyond int64: kept as text only */
  TD_JSON_STRING,
  TD_JSON_ARRAY,
  TD_JSON_OBJECT
} td_json_type;

typedef struct td_json td_json;
struct td_json {
  td_json_type type;
  uint32_t count;   /* members of an array or object */
  const char* key;  /* in an object */
  const char* text; /* of a string or real */
  int64_t integer;  /* of an integer or bool */
  td_json* child;
  td_json* next;
  uint32_t start, end; /* where it stands in the text, in bytes */
};

/* Parses strict JSON (RFC 8259; no duplicate keys, valid UTF-8, no NUL, depth and size capped). */
int32_t td_json_parse(const char* text, size_t bytes, td_zone* zone, td_json** root,
                      td_error* error);
const td_json* td_json_get(const td_json* object, const char* key);
const char* td_json_type_name(td_json_type type);

/* ---- dtype.c --------------------------------------------------------------------------------- */

typedef struct {
  const char* name;
  uint8_t code, bits; /* DLPack */
  uint8_t bytes;
} td_dtype;

const td_dtype* td_dtype_by_name(const char* name);
const td_dtype* td_dtype_by_code(unsigned code, unsigned bits);
/* Bytes of a tensor; false on a negative size or when the number does not fit. */
bool td_tensor_bytes(const td_dtype* dtype, const int64_t* shape, int32_t ndim, size_t* bytes);

/* ---- plan.c ---------------------------------------------------------------------------------- */

/* An extent of a tensor (or any other count): a number, or one of the plan's sizes. */
typedef struct {
  int64_t number;
  uint32_t size; /* TD_NUMBER: `number` counts */
} td_extent;

#define TD_NUMBER UINT32_MAX

typedef enum { TD_SIZE_INPUT, TD_SIZE_GIVEN, TD_SIZE_DATA, TD_SIZE_ADD, TD_SIZE_SUB, TD_SIZE_MUL,
               TD_SIZE_FLOORDIV, TD_SIZE_FLOORMOD, TD_SIZE_MIN, TD_SIZE_MAX,
               TD_SIZE_BROADCAST } td_size_op;

/* A size that a run decides: the extent of an input, a number read from data, or computed. */
typedef struct {
  td_size_op op;
  const char* name;     /* "" for most computed ones */
  uint32_t input, axis; /* TD_SIZE_INPUT; TD_SIZE_GIVEN: `input` is its number among those */
  td_extent a, b;       /* computed: earlier sizes, or numbers */
  uint32_t segment;     /* known from this segment on, see td_segment */
} td_size;

typedef enum { TD_VALUE_INPUT, TD_VALUE_OUTPUT, TD_VALUE_CONSTANT, TD_VALUE_ARENA,
               TD_VALUE_WORKSPACE, TD_VALUE_VIEW } td_value_kind;

typedef struct {
  td_value_kind kind;
  const td_dtype* dtype;
  const int64_t* shape; /* TD_UNKNOWN where a run decides */
  int32_t ndim;
  size_t bytes;
  size_t offset;            /* arena and workspace */
  const char* param;        /* constant */
  const td_extent* extents; /* what `shape` is per run; NULL in a static plan */
  td_extent extra;          /* view: the offset in bytes; workspace of a dynamic plan: its bytes */
  uint32_t of;              /* view: the value it is a part of; else the value itself */
  uint32_t segment;         /* its type is known from this segment on */
} td_value;

#define TD_UNKNOWN ((int64_t)-1)

typedef enum { TD_OP_CALL, TD_OP_COPY, TD_OP_SIZE, TD_OP_IF, TD_OP_LOOP, TD_OP_RESULT,
               TD_OP_CHECK, TD_OP_RANDOM } td_op;

/* What a branch or loop runs and gives: bodies are plans of their own. */
typedef struct {
  uint32_t bodies[2];        /* then and else; a loop has one */
  uint32_t states;           /* of a loop */
  uint32_t num_given;        /* sizes that the bodies are given */
  uint32_t num_results;
  const td_extent* given;
  const uint32_t *result, *axis; /* where the instruction's sizes come from */
} td_block;

typedef struct {
  td_op op;
  uint32_t kernel; /* position in td_plan.kernels (call) */
  uint32_t num_args, num_dims;
  const uint32_t* args; /* value ids; for a copy: from, to; for sizes: where they are read */
  const int64_t* dims;
  const td_extent* extents; /* what `dims` are per run; NULL in a static plan */
  const uint32_t* sizes;    /* what a TD_OP_SIZE or a block reads, `num_dims` of them */
  const td_block* block;    /* TD_OP_IF, TD_OP_LOOP */
  uint32_t source, index;   /* TD_OP_RESULT: the instruction and which of its results */
  size_t axis;              /* TD_OP_CHECK: that of the first index; `dims` are extents */
  const char* origin;
} td_instruction;

/* True for what makes sizes known: reading them from data, branches and loops. */
static inline bool td_ends_segment(td_op op) {
  return op == TD_OP_SIZE || op == TD_OP_IF || op == TD_OP_LOOP;
}

typedef enum {
  TD_RULE_EQUAL,  /* a == b */
  TD_RULE_WITHIN, /* a <= b, which is the extent of an axis */
  TD_RULE_FILLED, /* a, the extent of an axis, is above 0 unless b is 0 */
  TD_RULE_KEPT,   /* a, the extent of an axis that a squeeze keeps, is not 1 */
  TD_RULE_NEVER,  /* nothing does: a branch that cannot run */
  TD_RULE_ASKED   /* a <= b, as the model says that its sizes are */
} td_rule;

/* What two sizes must satisfy for the node behind `origin`. */
typedef struct {
  td_rule rule;
  size_t axis;
  td_extent a, b;
  const char* origin;
  uint32_t segment;
} td_size_check;

/* A run of instructions up to (and including) one that makes sizes known, or to the end. All
 * sizes that the memory of its values needs are known when it starts. */
typedef struct {
  uint32_t begin, end;
} td_segment;

typedef struct {
  const char* name;
  uint32_t value;
} td_port;

typedef struct td_plan td_plan;
struct td_plan {
  const char* target;
  const char* triple; /* what the machine code is made for; NULL if the plan does not say */
  const char** features;
  td_value* values;
  td_port* inputs;
  td_port* outputs;
  const char** kernels; /* distinct names, in order of first use */
  td_instruction* instructions;
  td_size* sizes;
  td_size_check* checks;
  td_segment* segments; /* of a dynamic plan; at least one */
  uint32_t num_features, num_values, num_inputs, num_outputs, num_kernels, num_instructions;
  uint32_t num_sizes, num_segments, num_checks;
  size_t arena_bytes, input_alignment;
  size_t stack_bytes; /* what a kernel takes of a thread's stack at most; 0 if it is not known */
  bool is_dynamic; /* version 2: sizes and places are settled by every run */
  td_plan* plans;  /* the bodies of branches and loops */
  uint32_t num_plans, num_given, depth;
};

/* A body runs inside the plan it belongs to, which may be one itself. */
#define TD_MAX_DEPTH 16

/* Reads and checks a plan; all its memory comes from `zone`, nothing points into `root`. */
int32_t td_plan_read(const td_json* root, td_zone* zone, td_plan* plan, td_error* error);

/* ---- weights.c ------------------------------------------------------------------------------- */

typedef struct td_mapping td_mapping;

/* Where the weights of an artifact lie: in the mapped file, in memory, or some here, some there. */
typedef struct {
  td_mapping* mapping; /* NULL: nothing is mapped */
  void* block;         /* NULL: nothing had to be copied */
} td_weights;

/* Maps a part of a file for reading. All mappings of the same unchanged part are one. NULL when the
 * system cannot. */
td_mapping* td_mapping_open(int fd, uint64_t offset, size_t bytes);
const unsigned char* td_mapping_data(const td_mapping* mapping);
/* Whether the content was compared with its hash, by any of the users. */
bool td_mapping_is_verified(const td_mapping* mapping);
void td_mapping_set_verified(td_mapping* mapping);
void td_weights_drop(td_weights* weights);

/* ---- model.c --------------------------------------------------------------------------------- */

/* What the executors of one model share. Nothing of it changes once the first one is made. */
typedef struct {
  _Atomic uint32_t users;
  td_zone zone; /* everything here that is not weights or code */
  td_plan plan;
  const char* plan_text; /* JSON, as it was read */
  size_t plan_bytes;
  td_symbol* kernels;
  td_name* kernel_names; /* sorted */
  td_constant* constants;
  td_name* constant_names;
  void** copies; /* of constants that came unaligned */
  size_t num_kernels, num_constants;
  td_weights weights;  /* of an artifact */
  td_library* library; /* likewise */
  /* What closes the library; NULL without one. A pointer, so that programs without loaded code are
   * linked without the loader. */
  void (*close_library)(td_library* library);
} td_model;

/* Makes an empty model with one user. */
int32_t td_model_create(td_model** model, td_error* error);
/* One user more; one user less. */
td_model* td_model_use(td_model* model);
void td_model_drop(td_model* model);
/* Reads and checks the plan; `root` is what `text` says. */
int32_t td_model_take_plan(td_model* model, const td_json* root, const char* text, size_t bytes,
                           td_error* error);
int32_t td_model_read_plan(td_model* model, const char* text, size_t bytes, td_error* error);
int32_t td_model_set_kernels(td_model* model, const td_symbol* kernels, size_t count,
                             td_error* error);
int32_t td_model_set_constants(td_model* model, const td_constant* constants, size_t count,
                               td_error* error);
/* Copies a constant to aligned memory, for all executors: while the first one is made. */
int32_t td_model_align(td_model* model, size_t position, void** data, td_error* error);

/* ---- linked.c -------------------------------------------------------------------------------- */

/* Makes an executor of a linked model. It works in `memory` of `bytes` bytes, or, where that is NULL,
 * in memory of its own. `library` is where the model comes from, NULL if it is part of the program;
 * the executor closes it with `close_library` in the end, also when this fails. */
int32_t td_linked_open(const td_linked* linked, td_library* library,
                       void (*close_library)(td_library*), void* memory, size_t bytes,
                       td_executor** executor, td_error* error);

/* ---- shared.c -------------------------------------------------------------------------------- */

/* True for a file that starts like a shared object (or any other ELF file). */
bool td_is_shared_object(int fd);
/* Makes an executor from a shared object that holds a linked model; `flags` as for td_open_file. */
int32_t td_shared_open(int fd, uint32_t flags, td_executor** executor, td_error* error);

/* ---- forks.c --------------------------------------------------------------------------------- */

/* A number that no other process has among those that this one was forked off. */
uint32_t td_process(void);

/* ---- run.c ----------------------------------------------------------------------------------- */

void td_runs_after_fork(void);

/* ---- threads.c, machine.c -------------------------------------------------------------------- */

/* A run has a team of threads, and its part of all threads, from begin to end. */
void td_run_begins(td_env* env);
void td_run_ends(td_env* env);
/* In a child: the run is one of the thread that forked. After td_threads_after_fork. */
void td_run_goes_on(const td_env* env);
void td_threads_after_fork(void);
/* Ends the threads that no run has; the next run starts its own. */
void td_threads_rest(void);
/* Starts the threads that a run with so many needs, and touches so much of their stacks and of the
 * caller's, now and not in the first such run. Nothing where runs go on, which have threads. */
void td_threads_start(int32_t count, size_t stack_bytes);

/* Binds the calling thread to one CPU; false where the system does not. */
bool td_bind_to_cpu(int32_t cpu);
/* Whether the process may run on a CPU: 1, 0, or -1 where the system does not say. */
int32_t td_may_use_cpu(int32_t cpu);

/* Physical memory in bytes; SIZE_MAX if unknown. */
size_t td_physical_memory(void);

/* Makes the pages of fresh memory resident, so that its first use does not wait for them. Leaves
 * alone what would take a large part of the machine's memory. */
void td_touch(void* memory, size_t bytes);
/* Bytes between here and the end of the calling thread's stack; 0 where the system does not say.
 * It may allocate memory. */
size_t td_stack_room(void);
/* TD_MEMORY where that is known to be too little for kernels that take so many. The system is asked
 * once for each thread, and only if the run may allocate memory. */
int32_t td_check_stack(size_t bytes, bool may_ask, td_error* error);
/* td_touch for the stack of the calling thread, from here on, and no more than half of its room. */
void td_touch_stack(size_t bytes, size_t room);

/* True with TREADLE_GUARD=1, on Linux: memory of td_alloc ends where a page does that nobody may
 * touch, so that a kernel that goes past its end faults, and the name of the last kernel is told. */
bool td_guards(void);
void td_guards_name(const char* kernel);

/* Refuses code made for another architecture, and features this machine lacks or this runtime does
 * not know. */
int32_t td_check_machine(const td_plan* plan, td_error* error);

/* ---- hash.c ---------------------------------------------------------------------------------- */

typedef struct {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t tail[64];
} td_sha256_state;

void td_sha256_start(td_sha256_state* s);
void td_sha256_add(td_sha256_state* s, const void* data, size_t bytes);
/* The result, once. */
void td_sha256_finish(td_sha256_state* s, uint8_t digest[32]);
void td_sha256_hex(td_sha256_state* s, char hex[65]);

/* ---- poly1305.c ------------------------------------------------------------------------------ */

typedef struct {
  uint32_t powers[32][5]; /* of r, from the first on, in limbs of 26 bits */
  int num_powers;         /* that are known */
  uint32_t h[5], last[4];
  uint8_t tail[16];
  size_t held; /* bytes of the tail */
} td_poly1305_state;

/* The key may be used for one message. */
void td_poly1305_start(td_poly1305_state* s, const uint8_t key[32]);
void td_poly1305_add(td_poly1305_state* s, const void* data, size_t bytes);
/* The result, once. */
void td_poly1305_finish(td_poly1305_state* s, uint8_t code[16]);

/* ---- library.c ------------------------------------------------------------------------------- */

/* A file of our own, anonymous where the system has that; `path` is a name that opens it. A
 * temporary one is to be unlinked. -1 (and errno) on failure. */
int td_private_file(char* path, size_t size, bool* temporary);
int32_t td_write_all(int fd, const void* data, size_t bytes, td_error* error);

/* Loads `bytes` bytes at `offset` of a file after comparing them with a SHA-256 (NULL: none). */
int32_t td_library_open_range(int fd, uint64_t offset, size_t bytes, const char* sha256,
                              td_library** library, td_error* error);
/* Loads the shared object that is open as `fd` where it is, without a copy: large weights may be in
 * it. */
int32_t td_library_open_in_place(int fd, uint64_t bytes, td_library** library, td_error* error);
/* The address of anything that a library exports, or NULL. */
void* td_library_symbol(const td_library* library, const char* name);

/* ---- tar.c, params.c ------------------------------------------------------------------------- */

typedef struct {
  uint64_t offset, bytes;
  bool found;
} td_member;

typedef struct {
  const char* name;
  uint64_t limit; /* largest acceptable size */
  td_member member;
} td_wanted;

/* Finds the wanted members of a tar; refuses an archive with anything else in it. */
int32_t td_tar_find(int fd, td_wanted* wanted, size_t count, td_error* error);
/* Reads exactly `bytes` at `offset`. */
int32_t td_read_at(int fd, void* data, size_t bytes, uint64_t offset, td_error* error);

typedef struct {
  td_constant* constants; /* from the zone; data points into the weights */
  size_t count;
  td_weights weights; /* release with td_weights_drop */
} td_params;

/* The hashes of the weights: at least one is given, `hash64` counts where both are. */
typedef struct {
  const char *sha256, *hash64;
  bool all; /* compare, however many bytes there are */
} td_expected;

/* Maps or reads the weights a plan uses, checking every size against plan and member. */
int32_t td_params_read(int fd, const td_member* member, const td_plan* plan,
                       const td_expected* expected, td_zone* zone, td_params* params,
                       td_error* error);

#endif /* TREADLE_INTERNAL_H_ */
