/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native runtime of Treadle: everything needed to run a compiled model, in plain C11.
 *
 * Conventions
 *  - A function that can fail returns a td_status and fills the td_error it is given (which may be
 *    NULL). Nothing is printed, nothing aborts, nothing throws.
 *  - Handles are opaque. Text returned by a query belongs to its handle.
 *  - Kernels are machine code: a compiled artifact must be trusted like a program. Everything else
 *    in an artifact (archive, manifest, plan, weights) is validated before use.
 *  - Every function may be called from any thread. Runs of one executor happen one after another;
 *    executors of one model (td_executor_fork) run beside each other and share code and weights.
 *  - A child made by fork() may use every handle, whatever other threads of the parent were doing. A
 *    run that was going on there goes on there alone: in the child its executor has no results, and
 *    neither observer nor profile.
 */
#ifndef TREADLE_H_
#define TREADLE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TD_API __attribute__((visibility("default")))
#else
#define TD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---------------------------------------------------------------------------------- */

typedef enum {
  TD_OK = 0,
  TD_ARGUMENT = 1,    /* the caller broke this header's rules */
  TD_INPUT = 2,       /* an input or output buffer of a run is missing or overlaps another */
  TD_PLAN = 3,        /* the execution plan contradicts itself */
  TD_ARTIFACT = 4,    /* the artifact is damaged, unsafe, or made for another machine */
  TD_UNSUPPORTED = 5, /* made for a newer runtime or for CPU features that are missing here */
  TD_MEMORY = 6,      /* not enough memory */
  TD_SYSTEM = 7,      /* the operating system refuses */
  TD_KERNEL = 8,      /* a kernel reports failure */
  TD_SIZES = 9        /* a plan for any sizes cannot run at these; a plan made for them can */
} td_status;

typedef struct {
  int32_t code;    /* a td_status */
  char text[1024]; /* what is wrong, with the offending values */
  char hint[512];  /* the next action; may be empty */
} td_error;

/* The version of this runtime, "major.minor.patch". */
TD_API const char* td_version(void);

/* ---- the kernel ABI -------------------------------------------------------------------------- */

typedef struct td_env td_env;

/* One piece of a parallel loop: iterations [begin, end), executed by participant `worker`. */
typedef int32_t (*td_body)(const td_env* env, void* closure, int64_t begin, int64_t end,
                           int32_t worker);

/* What a kernel may use. The order of the fields is part of the ABI. */
struct td_env {
  /* Runs `body` over [0, count), cut into pieces that the pool's threads take as they are free.
   * Returns the first non-zero result. A call from inside a body runs serially. */
  int32_t (*parallel)(const td_env* env, td_body body, void* closure, int64_t count);
  int32_t num_threads; /* participants a parallel loop may use; worker is below it */
  int32_t all;         /* private to the runtime, like what follows */
  void* pool;
};

/* One kernel call: `buffers` holds one 64-byte aligned pointer per buffer parameter in order
 * (inputs, outputs, then one workspace if the kernel needs it); `dims` one value per symbolic size
 * (NULL when there is none). Returns 0 or a non-zero code of the kernel's own. */
typedef int32_t (*td_kernel)(const td_env* env, void* const* buffers, const int64_t* dims);

/* Calls `kernel` once. */
TD_API int32_t td_kernel_call(td_kernel kernel, const td_env* env, void* const* buffers,
                              const int64_t* dims, td_error* error);

/* Calls `kernel` `number` times in a row and stores the elapsed time in nanoseconds. */
TD_API int32_t td_kernel_time(td_kernel kernel, const td_env* env, void* const* buffers,
                              const int64_t* dims, int64_t number, int64_t* elapsed_ns,
                              td_error* error);

/* ---- machine --------------------------------------------------------------------------------- */

/* CPUs this process may use: the affinity mask, cut by the cgroup's CPU quota rounded up. `root`
 * is put in front of the paths under /proc and /sys (NULL for the machine itself). */
TD_API int32_t td_usable_cpus(const char* root);

/* 1 if the CPU and the system offer the feature (LLVM's name for it), 0 if not, -1 if unknown. */
TD_API int32_t td_cpu_has(const char* feature);

/* The features td_cpu_has confirms, separated by commas. The text lives as long as the process. */
TD_API const char* td_cpu_features(void);

/* Memory aligned to 64 bytes; from 2 MiB on aligned to 2 MiB and offered to the system's huge
 * pages. NULL with an error if there is not enough. Release with td_free. */
TD_API void* td_alloc(size_t bytes, td_error* error);
TD_API void td_free(void* memory);

/* Monotonic clock in nanoseconds. */
TD_API int64_t td_now_ns(void);

/* ---- threads --------------------------------------------------------------------------------- */

/* Threads used by environments that do not say otherwise: td_set_num_threads, else the variable
 * TREADLE_NUM_THREADS, else td_usable_cpus. Runs that go on beside each other share that many: of 8
 * threads two runs use 4 each, and whichever goes on alone uses what it may. */
TD_API int32_t td_num_threads(void);

/* Sets that number; 0 returns to the default. */
TD_API int32_t td_set_num_threads(int32_t count, td_error* error);

/* Binds the threads of parallel loops to CPUs: thread k of a run to cpus[k % count]. Thread 0 is the
 * one that calls td_run; it is the caller's, and is left alone. To be called before the first run;
 * `count` 0 binds none. TD_UNSUPPORTED where the system does not bind threads. */
TD_API int32_t td_set_cpus(const int32_t* cpus, int32_t count, td_error* error);

/* Fills an environment for up to `num_threads` threads (0: td_num_threads). The threads start as a
 * model is opened, others on first need. A fork ends those that no run has, in the parent as well;
 * the next runs there and in the child start their own. */
TD_API int32_t td_env_init(td_env* env, int32_t num_threads, td_error* error);

/* ---- content hashes -------------------------------------------------------------------------- */

/* SHA-256 in hexadecimal. */
TD_API void td_sha256(const void* data, size_t bytes, char hex[65]);

/* A fast 64-bit content check in hexadecimal (finds damage, is no defence against intent). */
TD_API void td_hash64(const void* data, size_t bytes, char hex[17]);

/* The same over data that comes in pieces: start, add each piece, then read the result once. */
typedef struct {
  uint64_t lanes[4];
  uint64_t bytes;
  uint8_t tail[32];
} td_hash64_state;

TD_API void td_hash64_start(td_hash64_state* state);
TD_API void td_hash64_add(td_hash64_state* state, const void* data, size_t bytes);
TD_API void td_hash64_hex(td_hash64_state* state, char hex[17]);

/* 1 if the bytes at each place are those of `kept`, which holds them one place after the other; else
 * 0. bytes[i] are read at places[i]. */
TD_API int32_t td_spans_equal(const void* const* places, const size_t* bytes, size_t count,
                              const void* kept);

/* Poly1305 (RFC 8439) of a message that is two pieces, each of which may be empty. The key may be used
 * for one message. */
TD_API void td_poly1305(const uint8_t key[32], const void* first, size_t first_bytes,
                        const void* second, size_t second_bytes, uint8_t code[16]);

/* A frame of the RPC protocol: what is before its blob, and the blob. `key`, 32 bytes, is that of its
 * Poly1305 code, which follows the blob; NULL: no code follows. */
typedef struct {
  const void* start;
  size_t start_bytes;
  const void* blob;
  size_t blob_bytes;
  const uint8_t* key;
} td_frame;

/* How many whole frames have been sent, and how many bytes of the next one. */
typedef struct {
  size_t frames, bytes;
} td_frames_sent;

/* Sends the frames, but for what `sent` says, over a connected socket. Where it has no room and does
 * not block, waits up to `timeout_ms` for each step (below 0: any time). Returns 0, or an errno: after
 * EINTR, and ETIMEDOUT, a call with the same `sent` goes on. */
TD_API int32_t td_send_frames(int32_t socket, const td_frame* frames, size_t count,
                              int32_t timeout_ms, td_frames_sent* sent);

/* ---- machine code ---------------------------------------------------------------------------- */

typedef struct td_library td_library;

/* Loads a shared object after checking that it is one for this machine. */
TD_API int32_t td_library_open(const char* path, td_library** library, td_error* error);

/* The same from memory, without leaving a file behind. */
TD_API int32_t td_library_open_memory(const void* data, size_t bytes, td_library** library,
                                      td_error* error);

/* The address of a kernel, or NULL. */
TD_API td_kernel td_library_kernel(const td_library* library, const char* name);
TD_API void td_library_close(td_library* library);

/* ---- executors ------------------------------------------------------------------------------- */

typedef struct td_executor td_executor;

typedef struct {
  const char* name;
  td_kernel kernel;
} td_symbol;

typedef struct {
  const char* name;
  const void* data; /* used in place when 64-byte aligned, else copied once */
  size_t bytes;
} td_constant;

typedef struct {
  const char* name;
  const char* dtype;
  const int64_t* shape;
  int32_t ndim;
  size_t bytes;
} td_tensor_info;

typedef struct {
  const char* op;     /* "call", "copy" or "size" */
  const char* kernel; /* "" for a copy */
  const char* origin; /* the names of the model's nodes behind it */
} td_instruction_info;

/* One input of a run that decides its sizes. */
typedef struct {
  const void* data;
  const int64_t* shape;
  int32_t ndim;
} td_tensor;

/* Memory for one output of such a run; `data` NULL: the executor keeps the result. */
typedef struct {
  void* data;
  size_t bytes;
} td_buffer;

/* Makes an executor from a plan (JSON text), kernels by name and constants by name. The plan is
 * checked as a whole before any pointer is used. Kernels and constants must outlive the executor and
 * its forks. Names and plan are copied. */
TD_API int32_t td_executor_create(const char* plan, size_t plan_bytes, const td_symbol* kernels,
                                  size_t num_kernels, const td_constant* constants,
                                  size_t num_constants, td_executor** executor, td_error* error);

/* Makes an executor from an artifact (a tar of mod.so, mod.json, mod.params), or from a shared object
 * that holds a whole model (--output-format so), which is loaded as it is. Nothing is written to the
 * file system where the system offers anonymous files.
 *
 * Weights of 1 MiB and more are mapped: all executors of a file, in all processes, share the pages
 * of the file cache. So the file must not be written to while it is in use; replacing it by renaming
 * another one to its name is fine. */
TD_API int32_t td_open(const char* path, td_executor** executor, td_error* error);

/* Compare the weights with their hash, however many they are. Without it that is done up to 64 MiB:
 * reading more would take longer than all the rest of loading. Machine code and plan are always
 * compared, and every length and type is checked. */
#define TD_VERIFY 1u

/* The same from an open file, which stays open and the caller's. `flags`: 0 or TD_VERIFY. */
TD_API int32_t td_open_file(int fd, uint32_t flags, td_executor** executor, td_error* error);

/* The same from memory, which is copied. */
TD_API int32_t td_open_memory(const void* data, size_t bytes, uint32_t flags,
                              td_executor** executor, td_error* error);

/* ---- models that are part of a program ------------------------------------------------------- */

#define TD_LINKED_FORMAT 1u

/* A model in the machine code of a program or shared object, as `treadle compile --output-format`
 * o, c and so make it. The header made with it declares a function NAME_model that returns it. The
 * order of the fields is part of the ABI. */
typedef struct {
  uint32_t format; /* TD_LINKED_FORMAT */
  uint32_t num_kernels, num_constants;
  uint32_t reserved;
  const char* plan; /* JSON text of `plan_bytes` bytes */
  size_t plan_bytes;
  const td_symbol* kernels;
  const td_constant* constants;
  size_t arena_bytes; /* what td_open_static needs; 0 where each run decides sizes */
} td_linked;

/* Makes an executor of a linked model: nothing is loaded, the weights are used where they lie.
 * Programs that use only this and td_open_static need no dynamic loader. */
TD_API int32_t td_open_linked(const td_linked* model, td_executor** executor, td_error* error);

/* The same, in the caller's working memory: at least model->arena_bytes bytes, aligned or not, which
 * outlive the executor. Once it is made, its runs ask the system for no memory. It uses one thread;
 * td_executor_set_num_threads starts others there and then. Results that a run leaves to the
 * executor lie in that memory, so that td_executor_take_output gives none of them. */
TD_API int32_t td_open_static(const td_linked* model, void* memory, size_t bytes,
                              td_executor** executor, td_error* error);

/* ---- using executors ------------------------------------------------------------------------- */

/* Makes a second executor of the same model: code and weights are shared, working memory
 * (td_executor_arena_bytes) is its own, so both can run at the same time. It may use as many threads
 * as `executor` and outlive it. What else was set (observer, profile) does not carry over. */
TD_API int32_t td_executor_fork(td_executor* executor, td_executor** fork, td_error* error);

TD_API void td_close(td_executor* executor);

/* The execution plan as it was loaded: JSON text of `*bytes` bytes (docs/design/plan.md), valid until
 * the last executor of the model is closed. */
TD_API const char* td_executor_plan(const td_executor* executor, size_t* bytes);

/* Runs the plan once. inputs[i] points to td_executor_input(i).bytes bytes. outputs (or any
 * outputs[i]) may be NULL: the result is then kept in the executor, see td_executor_output_data.
 * Buffers aligned to 64 bytes are used in place, others are copied; inputs need only 8 bytes on CPUs
 * whose vectors are loaded from anywhere. */
TD_API int32_t td_run(td_executor* executor, const void* const* inputs, void* const* outputs,
                      td_error* error);

/* The same for a model with sizes that each run decides (td_executor_is_dynamic): every input comes
 * with its shape. `outputs` may be NULL; a buffer may be larger than the result. Nothing is
 * compiled and, for sizes that were seen in the run before, nothing is placed anew. */
TD_API int32_t td_run_shaped(td_executor* executor, const td_tensor* inputs,
                             const td_buffer* outputs, td_error* error);

/* The arguments of td_run, or of td_run_shaped, in memory: for callers to whom passing each of them
 * costs more than a small model. */
typedef struct {
  td_executor* executor;
  const void* inputs; /* pointers to data, or td_tensor */
  void* outputs;      /* pointers to data, or td_buffer; or NULL */
  td_error* error;    /* or NULL */
} td_call;

/* Runs the plan as the one of the two that it is for does. */
TD_API int32_t td_run_call(const td_call* call);

/* 1 for a model to run with td_run_shaped, 0 for one to run with td_run. */
TD_API int32_t td_executor_is_dynamic(const td_executor* executor);

TD_API int32_t td_executor_num_inputs(const td_executor* executor);
TD_API int32_t td_executor_num_outputs(const td_executor* executor);

/* Describes one input or output. An extent that each run decides is -1, `bytes` is 0 then. */
TD_API int32_t td_executor_input(const td_executor* executor, int32_t index, td_tensor_info* info,
                                 td_error* error);
TD_API int32_t td_executor_output(const td_executor* executor, int32_t index,
                                  td_tensor_info* info, td_error* error);

/* The position of an input or output by name, or -1. */
TD_API int32_t td_executor_find_input(const td_executor* executor, const char* name);
TD_API int32_t td_executor_find_output(const td_executor* executor, const char* name);

/* The executor's own buffer of one output (NULL before a run that left the output to it). Valid
 * until td_close; the next such run overwrites it. */
TD_API const void* td_executor_output_data(const td_executor* executor, int32_t index);

/* Describes an output as the last run made it: with its shape and bytes. The shape is valid until
 * the next run. */
TD_API int32_t td_executor_result(td_executor* executor, int32_t index, td_tensor_info* info,
                                  td_error* error);

/* Hands the executor's own buffer of one output over to the caller, who releases it with td_free.
 * NULL if the last run did not leave that output to the executor. */
TD_API void* td_executor_take_output(td_executor* executor, int32_t index);

/* Hands such memory, of at least `bytes` bytes, back for results of that output in later runs: its
 * pages are there already. It is the executor's from then on, whatever happens. */
TD_API void td_executor_give_output(td_executor* executor, int32_t index, void* memory,
                                    size_t bytes);

/* The target the plan was compiled for, and its memory in bytes. */
TD_API const char* td_executor_target(const td_executor* executor);
TD_API size_t td_executor_arena_bytes(const td_executor* executor);
TD_API size_t td_executor_constant_bytes(const td_executor* executor);

/* Makes the random numbers of the runs from now on those of a seed, the same for the same seed.
 * Without it every executor draws others. Nodes of the model with a seed of their own keep it. */
TD_API void td_executor_seed(td_executor* executor, uint64_t seed);

TD_API int32_t td_executor_num_threads(const td_executor* executor);
TD_API int32_t td_executor_set_num_threads(td_executor* executor, int32_t count, td_error* error);

TD_API int32_t td_executor_num_instructions(const td_executor* executor);
TD_API int32_t td_executor_instruction(const td_executor* executor, int32_t index,
                                       td_instruction_info* info, td_error* error);

/* Called after every instruction of a run, on the thread that runs. It must not run the executor. */
typedef void (*td_observer)(void* context, int32_t instruction);
TD_API void td_observe(td_executor* executor, td_observer observer, void* context);

/* Describes the (last) value an instruction writes, and where it is: to be read by an observer, for
 * later instructions may use the memory again. */
TD_API int32_t td_executor_written(const td_executor* executor, int32_t index,
                                   td_tensor_info* info, const void** data, td_error* error);

/* From start to stop every run adds to two numbers per instruction: nanoseconds and runs. Start
 * sets them to zero. */
TD_API void td_profile_start(td_executor* executor);
TD_API void td_profile_stop(td_executor* executor);
TD_API int32_t td_profile_read(td_executor* executor, uint64_t* nanoseconds, uint64_t* runs,
                               td_error* error);

#ifdef __cplusplus
}
#endif

#endif /* TREADLE_H_ */
