/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session on the device: a process of its own that answers one client's calls until it goes. What
 * crashes or never ends costs this process alone.
 */
#ifndef TREADLE_RPC_SESSION_H_
#define TREADLE_RPC_SESSION_H_

#include "server.h"

#define RPC_MOST_REPEATS (1 << 20)

/* ---- table.c: objects by handle -------------------------------------------------------------- */

typedef struct {
  void* object; /* NULL: the slot is free */
  uint64_t generation;
  uint32_t next_free;
} rpc_slot;

/* A handle is a slot's number, from 1, and how often the slot was used before: no handle is given
 * twice. */
typedef struct {
  const char* what;
  rpc_slot* slots;
  uint32_t count, capacity, first_free;
} rpc_table;

/* The handle of an object that is added; 0 with an error. */
int64_t rpc_table_add(rpc_table* table, void* object, rpc_error* error);
/* The object of a handle, or NULL with an error (`error` may be NULL). */
void* rpc_table_at(const rpc_table* table, int64_t handle, rpc_error* error);
/* Takes an object out; NULL where there is none. */
void* rpc_table_remove(rpc_table* table, int64_t handle);

/* ---- files.c --------------------------------------------------------------------------------- */

/* The files of a session: all in one folder, by names that lead nowhere else. */
typedef struct {
  int folder, partials;
  int64_t quota;
  int upload; /* the file that is being uploaded, -1: none */
  char name[160], partial[65];
  int64_t size, length;
} rpc_files;

bool rpc_files_open(rpc_files* files, const char* root, const char* folder, int64_t quota,
                    rpc_error* error);
void rpc_files_close(rpc_files* files);
/* Opens a file for reading; -1 with an error. */
int rpc_files_located(const rpc_files* files, rpc_text name, char* plain, size_t size,
                      rpc_error* error);

/* ---- arrays.c -------------------------------------------------------------------------------- */

typedef struct {
  const td_dtype* dtype;
  int32_t ndim;
  int64_t shape[TD_MAX_NDIM];
  size_t bytes;
  void* data;
} rpc_array;

/* Writes "float32[1, 3]"; sizes of -1 are "?". */
void rpc_describe(const char* dtype, const int64_t* shape, int32_t ndim, char* text, size_t size);

/* ---- channel.c ------------------------------------------------------------------------------- */

/* What came: a frame, nothing because the connection has ended, or what is no frame. */
typedef enum { RPC_RECEIVED, RPC_ENDED, RPC_WRONG } rpc_received;

typedef struct {
  int socket;
  rpc_seal in, out;
  rpc_shared* shared;
  size_t woken_for; /* 0: not said yet */
  uint8_t* buffer; /* a header, a payload, a code */
} rpc_channel;

/* `keys` NULL: frames have no codes. The channel is used until the process ends. */
bool rpc_channel_open(rpc_channel* channel, int fd, const rpc_keys* keys, rpc_shared* shared);
/* Sends the frame that `start` begins and a blob ends. */
bool rpc_channel_send(rpc_channel* channel, rpc_kind kind, const rpc_out* start, const void* blob,
                      size_t blob_size);
/* The next frame, valid until another one is asked for; an error where it is wrong. */
rpc_received rpc_channel_receive(rpc_channel* channel, rpc_frame* frame, rpc_error* error);

/* ---- session.c ------------------------------------------------------------------------------- */

typedef struct {
  rpc_channel channel;
  rpc_out answer;
  double call_seconds;
  rpc_shared* shared;
  rpc_files files;
  rpc_table arrays, models, modules;
  int64_t memory, held; /* bytes that arrays may take, and do */
  uint8_t* piece;       /* RPC_PIECE_BYTES, for answers */
} rpc_session;

/* One call: its arguments, the bytes that came with it, and what is answered. */
typedef struct {
  rpc_args args;
  rpc_text blob;
  rpc_out* out; /* takes one list of values */
  const void* answer;
  size_t answer_size;
  rpc_error* error;
} rpc_call;

typedef bool (*rpc_function)(rpc_session* session, rpc_call* call);

/* The arrays of the handles in a list; NULL with an error. The caller frees what is returned. */
rpc_array** rpc_take_arrays(rpc_session* session, rpc_call* call, uint32_t* count);
/* Adds an array; it owns `data`, which is NULL to allocate it. Returns 0 with an error. */
int64_t rpc_add_array(rpc_session* session, const td_dtype* dtype, const int64_t* shape,
                      int32_t ndim, void* data, rpc_error* error);
/* Frees an array; one that is not there is ignored. */
void rpc_drop_array(rpc_session* session, int64_t handle);

/* ---- functions, by the file they are in ------------------------------------------------------ */

bool rpc_device_info(rpc_session* session, rpc_call* call);
bool rpc_device_threads(rpc_session* session, rpc_call* call);

bool rpc_file_begin(rpc_session* session, rpc_call* call);
bool rpc_file_check(rpc_session* session, rpc_call* call);
bool rpc_file_write(rpc_session* session, rpc_call* call);
bool rpc_file_end(rpc_session* session, rpc_call* call);
bool rpc_file_read(rpc_session* session, rpc_call* call);
bool rpc_file_remove(rpc_session* session, rpc_call* call);
bool rpc_file_list(rpc_session* session, rpc_call* call);

bool rpc_array_new(rpc_session* session, rpc_call* call);
bool rpc_array_free(rpc_session* session, rpc_call* call);
bool rpc_array_write(rpc_session* session, rpc_call* call);
bool rpc_array_read(rpc_session* session, rpc_call* call);
bool rpc_array_copy(rpc_session* session, rpc_call* call);

bool rpc_model_load(rpc_session* session, rpc_call* call);
bool rpc_model_free(rpc_session* session, rpc_call* call);
bool rpc_model_run(rpc_session* session, rpc_call* call);
bool rpc_model_time(rpc_session* session, rpc_call* call);
bool rpc_model_watch(rpc_session* session, rpc_call* call);
bool rpc_model_profile(rpc_session* session, rpc_call* call);
bool rpc_model_threads(rpc_session* session, rpc_call* call);
bool rpc_model_seed(rpc_session* session, rpc_call* call);
bool rpc_model_plan(rpc_session* session, rpc_call* call);
bool rpc_model_module(rpc_session* session, rpc_call* call);

bool rpc_module_load(rpc_session* session, rpc_call* call);
bool rpc_module_free(rpc_session* session, rpc_call* call);

bool rpc_kernel_call(rpc_session* session, rpc_call* call);
bool rpc_kernel_time(rpc_session* session, rpc_call* call);
bool rpc_kernel_rotate(rpc_session* session, rpc_call* call);

/* ---- timing.c -------------------------------------------------------------------------------- */

/* Runs something so many times; false with an error. */
typedef bool (*rpc_runner)(void* context, int64_t number, double* seconds, rpc_error* error);

typedef struct {
  int64_t number, repeat;
  double least_ms;
} rpc_repeats;

rpc_repeats rpc_take_repeats(rpc_args* args);
/* Runs once to warm up, then puts the seconds of every repeat; a repeat is made of more runs until
 * it takes the least time. */
bool rpc_measure(rpc_runner runner, void* context, rpc_repeats repeats, rpc_call* call);
/* Writes over so much memory that no cache holds anything else. */
bool rpc_empty_caches(rpc_error* error);

/* ---- modules.c ------------------------------------------------------------------------------- */

/* An extent of a kernel's argument: a number, one of the kernel's sizes, or computed from them. */
typedef struct {
  enum { RPC_NUMBER, RPC_SIZE, RPC_FORMULA } kind;
  int64_t number; /* or which size */
  const char* text;
  const td_json* formula; /* a number, ["size", k] or [operation, a, b] */
} rpc_extent;

typedef struct {
  const char* name;
  const td_dtype* dtype;
  uint32_t ndim;
  rpc_extent* shape;
} rpc_param;

typedef struct {
  const char* name;
  td_kernel kernel;
  uint32_t num_params, num_sizes;
  rpc_param* params; /* inputs, outputs */
  const char** sizes;
  rpc_extent workspace; /* bytes */
} rpc_kernel;

typedef struct {
  td_zone zone;
  td_library* library;
  uint32_t count;
  rpc_kernel* kernels;
} rpc_module;

/* What mod.json and libraries say of their kernels: an object by name. The JSON text is in the
 * module's zone, and so is what is made of it. */
bool rpc_read_kernels(rpc_module* module, const td_json* table, rpc_error* error);
/* Takes over a module whose library is loaded; puts its handle and the names of its kernels. */
bool rpc_add_module(rpc_session* session, rpc_module* module, rpc_call* call);
void rpc_module_drop(rpc_module* module);

/* ---- extents.c ------------------------------------------------------------------------------- */

/* Whether a formula is one, over so many sizes. */
bool rpc_is_formula(const td_json* formula, uint32_t num_sizes);
/* Its value; false where that does not fit into 64 bits or is divided by 0. Sizes it is not made of
 * are not read. */
bool rpc_formula_value(const td_json* formula, const int64_t* sizes, int64_t* value);
/* The one size a formula is made of that is not known and in which it is linear, -1: none such. */
int64_t rpc_formula_unknown(const td_json* formula, const bool* is_known);
/* What a size must be for the formula to have a value; false where nothing is. */
bool rpc_formula_solved(const td_json* formula, int64_t* sizes, int64_t size, int64_t value);

/* ---- canonical.c ----------------------------------------------------------------------------- */

/* Writes JSON as Python's json.dumps(..., separators=(",", ":"), sort_keys=True) does. */
void rpc_put_canonical(rpc_out* out, const td_json* value);

#endif /* TREADLE_RPC_SESSION_H_ */
