/* SPDX-License-Identifier: Apache-2.0 */
/* Whole models of a session: loaded, run, timed and profiled by the runtime's executors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"

#define MOST_MANIFEST ((uint64_t)1 << 30)
#define MOST_CODE ((uint64_t)1 << 30)

typedef struct {
  int fd; /* the artifact: its kernels may be asked for later */
  char name[160];
  td_executor* executor;
} model;

static void drop(model* m) {
  if (m == NULL) return;
  td_close(m->executor);
  if (m->fd >= 0) close(m->fd);
  free(m);
}

static bool no_memory(rpc_error* error) {
  return rpc_fail(error, "the device has not enough memory");
}

/* ---- loading --------------------------------------------------------------------------------- */

static void put_info(rpc_out* out, const td_tensor_info* info) {
  rpc_put_list(out, 4);
  rpc_put_text(out, info->name);
  rpc_put_text(out, info->dtype);
  rpc_put_list(out, (uint32_t)info->ndim);
  for (int32_t i = 0; i < info->ndim; i++) rpc_put_int(out, info->shape[i]);
  rpc_put_int(out, (int64_t)info->bytes);
}

static void put_model(rpc_out* out, const td_executor* executor, int64_t handle) {
  td_tensor_info info;
  int32_t inputs = td_executor_num_inputs(executor), outputs = td_executor_num_outputs(executor);
  rpc_put_list(out, 6);
  rpc_put_int(out, handle);
  rpc_put_list(out, (uint32_t)inputs);
  for (int32_t i = 0; i < inputs; i++)
    if (td_executor_input(executor, i, &info, NULL) == TD_OK) put_info(out, &info);
  rpc_put_list(out, (uint32_t)outputs);
  for (int32_t i = 0; i < outputs; i++)
    if (td_executor_output(executor, i, &info, NULL) == TD_OK) put_info(out, &info);
  rpc_put_text(out, td_executor_target(executor));
  rpc_put_int(out, (int64_t)td_executor_arena_bytes(executor));
  rpc_put_int(out, (int64_t)td_executor_constant_bytes(executor));
}

static bool open_model(rpc_session* session, rpc_text file, int32_t threads, model* m,
                       rpc_error* error) {
  td_error failed;
  m->fd = rpc_files_located(&session->files, file, m->name, sizeof m->name, error);
  if (m->fd < 0) return false;
  if (td_open_file(m->fd, 0, &m->executor, &failed) != TD_OK)
    return rpc_fail_td(error, &failed, m->name);
  return threads == 0 || td_executor_set_num_threads(m->executor, threads, &failed) == TD_OK ||
         rpc_fail_td(error, &failed, m->name);
}

bool rpc_model_load(rpc_session* session, rpc_call* call) {
  rpc_text file = rpc_take_text(&call->args, 4096);
  int32_t threads = (int32_t)rpc_take_int(&call->args, 0, TD_MAX_THREADS);
  if (!rpc_args_end(&call->args)) return false;
  model* m = calloc(1, sizeof *m);
  if (m == NULL) return no_memory(call->error);
  m->fd = -1;
  int64_t handle = 0;
  if (open_model(session, file, threads, m, call->error))
    handle = rpc_table_add(&session->models, m, call->error);
  if (handle == 0) {
    drop(m);
    return false;
  }
  put_model(call->out, m->executor, handle);
  return true;
}

bool rpc_model_free(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  if (!rpc_args_end(&call->args)) return false;
  drop(rpc_table_remove(&session->models, handle));
  rpc_put_list(call->out, 0);
  return true;
}

/* Takes a model. */
static model* take_model(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  if (call->args.failed) return NULL;
  model* m = rpc_table_at(&session->models, handle, call->error);
  call->args.failed = m == NULL; /* the error stands, whatever is taken next */
  return m;
}

/* ---- arguments of runs ----------------------------------------------------------------------- */

/* A model with its inputs and places for its outputs, as td_run and td_run_shaped take them. */
typedef struct {
  model* model;
  rpc_array **inputs, **outputs; /* outputs may be NULL */
  uint32_t num_inputs, num_outputs;
  const void** given;
  void** taken;
  td_tensor* tensors;
  td_buffer* buffers;
  void** own; /* memory for outputs that nobody asked for */
} run;

static void release(run* r) {
  for (uint32_t i = 0; r->own != NULL && i < r->num_outputs; i++) td_free(r->own[i]);
  free(r->own);
  free(r->inputs);
  free(r->outputs);
  free(r->given);
  free(r->taken);
  free(r->tensors);
  free(r->buffers);
}

/* Whether an array is what a model's input or output must be; -1 stands for any size. */
static bool fits(const rpc_array* array, const td_tensor_info* info) {
  bool ok = strcmp(array->dtype->name, info->dtype) == 0 && array->ndim == info->ndim;
  for (int32_t i = 0; ok && i < info->ndim; i++)
    ok = info->shape[i] < 0 || info->shape[i] == array->shape[i];
  return ok;
}

static bool check_array(const rpc_array* array, const td_tensor_info* info, const char* what,
                        rpc_error* error) {
  char found[512], wanted[512];
  if (fits(array, info)) return true;
  rpc_describe(array->dtype->name, array->shape, array->ndim, found, sizeof found);
  rpc_describe(info->dtype, info->shape, info->ndim, wanted, sizeof wanted);
  return rpc_fail_as(error, "InputError", "%s '%.100s' is %s but %s is expected", what,
                     info->name, found, wanted);
}

static bool check_inputs(const run* r, uint32_t count, rpc_error* error) {
  td_tensor_info info;
  if (count > r->num_inputs)
    return rpc_fail_as(error, "InputError", "the model has %u inputs but is given %u",
                       (unsigned)r->num_inputs, (unsigned)count);
  if (count < r->num_inputs)
    return rpc_fail_as(error, "InputError", "%u of %u inputs are not given",
                       (unsigned)(r->num_inputs - count), (unsigned)r->num_inputs);
  for (uint32_t i = 0; i < count; i++) {
    (void)td_executor_input(r->model->executor, (int32_t)i, &info, NULL);
    if (!check_array(r->inputs[i], &info, "input", error)) return false;
    r->given[i] = r->inputs[i]->data;
    r->tensors[i] = (td_tensor){r->inputs[i]->data, r->inputs[i]->shape, r->inputs[i]->ndim};
  }
  return true;
}

static bool check_outputs(const run* r, uint32_t count, rpc_error* error) {
  td_tensor_info info;
  if (count == 0) return true;
  if (count != r->num_outputs)
    return rpc_fail_as(error, "InputError", "the model has %u outputs but is given %u arrays",
                       (unsigned)r->num_outputs, (unsigned)count);
  for (uint32_t i = 0; i < count; i++) {
    (void)td_executor_output(r->model->executor, (int32_t)i, &info, NULL);
    if (!check_array(r->outputs[i], &info, "the array for output", error)) return false;
    r->taken[i] = r->outputs[i]->data;
    r->buffers[i] = (td_buffer){r->outputs[i]->data, r->outputs[i]->bytes};
  }
  return true;
}

/* Takes a model and its inputs, and its outputs where `has_outputs`. */
static bool take_run(rpc_session* session, rpc_call* call, bool has_outputs, run* r) {
  uint32_t given = 0, taken = 0;
  *r = (run){.model = take_model(session, call)};
  if (r->model == NULL) return false;
  r->inputs = rpc_take_arrays(session, call, &given);
  if (r->inputs != NULL && has_outputs) r->outputs = rpc_take_arrays(session, call, &taken);
  if (call->args.failed) return false;
  r->num_inputs = (uint32_t)td_executor_num_inputs(r->model->executor);
  r->num_outputs = (uint32_t)td_executor_num_outputs(r->model->executor);
  size_t inputs = (size_t)r->num_inputs + 1, outputs = (size_t)r->num_outputs + 1;
  r->given = calloc(inputs, sizeof *r->given);
  r->tensors = calloc(inputs, sizeof *r->tensors);
  r->taken = calloc(outputs, sizeof *r->taken);
  r->buffers = calloc(outputs, sizeof *r->buffers);
  r->own = calloc(outputs, sizeof *r->own);
  bool ok = r->given != NULL && r->tensors != NULL && r->taken != NULL && r->buffers != NULL &&
            r->own != NULL;
  ok = ok ? check_inputs(r, given, call->error) && check_outputs(r, taken, call->error)
          : no_memory(call->error);
  if (taken == 0) {
    free(r->outputs);
    r->outputs = NULL;
  }
  call->args.failed = call->args.failed || !ok;
  return ok;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool run_once(const run* r, rpc_error* error) {
  td_error failed;
  td_executor* executor = r->model->executor;
  int32_t code = td_executor_is_dynamic(executor)
                     ? td_run_shaped(executor, r->tensors, r->buffers, &failed)
                     : td_run(executor, r->given, r->taken, &failed);
  return code == TD_OK || rpc_fail_td(error, &failed, r->model->name);
}

/* The arrays given for outputs have the sizes that the run has decided. */
static bool check_results(const run* r, rpc_error* error) {
  td_tensor_info info;
  td_error failed;
  for (uint32_t i = 0; i < r->num_outputs; i++) {
    if (td_executor_result(r->model->executor, (int32_t)i, &info, &failed) != TD_OK)
      return rpc_fail_td(error, &failed, r->model->name);
    if (!check_array(r->outputs[i], &info, "the array for output", error)) return false;
  }
  return true;
}

static void put_array(rpc_out* out, int64_t handle, const td_tensor_info* info) {
  rpc_put_int(out, handle);
  rpc_put_text(out, info->dtype);
  rpc_put_list(out, (uint32_t)info->ndim);
  for (int32_t k = 0; k < info->ndim; k++) rpc_put_int(out, info->shape[k]);
}

/* Gives the outputs that the run has left to the executor to the session, as arrays. */
static bool put_results(rpc_session* session, const run* r, rpc_call* call) {
  td_error failed;
  td_executor* executor = r->model->executor;
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, r->num_outputs);
  for (uint32_t i = 0; i < r->num_outputs; i++) {
    td_tensor_info info;
    if (td_executor_result(executor, (int32_t)i, &info, &failed) != TD_OK)
      return rpc_fail_td(call->error, &failed, r->model->name);
    void* data = td_executor_take_output(executor, (int32_t)i);
    if (data == NULL) return rpc_fail(call->error, "output %u is not there", (unsigned)i);
    int64_t handle = rpc_add_array(session, td_dtype_by_name(info.dtype), info.shape, info.ndim,
                                   data, call->error);
    if (handle == 0) return false;
    rpc_put_list(call->out, 3);
    put_array(call->out, handle, &info);
  }
  return true;
}

bool rpc_model_run(rpc_session* session, rpc_call* call) {
  run r;
  bool ok = take_run(session, call, true, &r) && rpc_args_end(&call->args) &&
            run_once(&r, call->error);
  if (ok && r.outputs == NULL) {
    ok = put_results(session, &r, call);
  } else if (ok) {
    ok = !td_executor_is_dynamic(r.model->executor) || check_results(&r, call->error);
    rpc_put_list(call->out, 1);
    rpc_put_list(call->out, 0);
  }
  release(&r);
  return ok;
}

/* Runs once and keeps the memory of the outputs for the runs that follow. */
static bool warm_up(run* r, rpc_error* error) {
  td_tensor_info info;
  td_error failed;
  if (!run_once(r, error)) return false;
  for (uint32_t i = 0; i < r->num_outputs; i++) {
    if (td_executor_result(r->model->executor, (int32_t)i, &info, &failed) != TD_OK)
      return rpc_fail_td(error, &failed, r->model->name);
    r->own[i] = td_executor_take_output(r->model->executor, (int32_t)i);
    r->taken[i] = r->own[i];
    r->buffers[i] = (td_buffer){r->own[i], info.bytes};
  }
  return true;
}

static bool time_runs(void* context, int64_t number, double* seconds, rpc_error* error) {
  int64_t start = td_now_ns();
  for (int64_t i = 0; i < number; i++)
    if (!run_once(context, error)) return false;
  *seconds = (double)(td_now_ns() - start) * 1e-9;
  return true;
}

bool rpc_model_time(rpc_session* session, rpc_call* call) {
  run r;
  bool ok = take_run(session, call, false, &r);
  rpc_repeats repeats = rpc_take_repeats(&call->args);
  ok = ok && rpc_args_end(&call->args) && warm_up(&r, call->error) &&
       rpc_measure(time_runs, &r, repeats, call);
  release(&r);
  return ok;
}

static bool put_profile(const run* r, rpc_call* call) {
  td_executor* executor = r->model->executor;
  uint32_t count = (uint32_t)td_executor_num_instructions(executor);
  uint64_t* times = calloc((size_t)count + 1, 2 * sizeof *times);
  uint64_t* runs = times + count;
  td_error failed;
  if (times == NULL) return no_memory(call->error);
  bool ok = td_profile_read(executor, times, runs, &failed) == TD_OK ||
            rpc_fail_td(call->error, &failed, r->model->name);
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, count);
  for (uint32_t i = 0; ok && i < count; i++) {
    td_instruction_info info;
    (void)td_executor_instruction(executor, (int32_t)i, &info, NULL);
    rpc_put_list(call->out, 4);
    rpc_put_text(call->out, info.kernel[0] != '\0' ? info.kernel : info.op);
    rpc_put_text(call->out, info.origin);
    rpc_put_float(call->out, (double)times[i] * 1e-9);
    rpc_put_int(call->out, (int64_t)runs[i]);
  }
  free(times);
  return ok;
}

bool rpc_model_profile(rpc_session* session, rpc_call* call) {
  run r;
  bool ok = take_run(session, call, false, &r);
  int64_t runs = rpc_take_int(&call->args, 1, RPC_MOST_REPEATS);
  ok = ok && rpc_args_end(&call->args) && warm_up(&r, call->error);
  if (ok) {
    td_profile_start(r.model->executor);
    for (int64_t i = 0; ok && i < runs; i++) ok = run_once(&r, call->error);
    td_profile_stop(r.model->executor);
  }
  ok = ok && put_profile(&r, call);
  release(&r);
  return ok;
}

/* ---- values inside a run --------------------------------------------------------------------- */

/* What is watched of a run: the values of some instructions are copied as they are written. */
typedef struct {
  rpc_session* session;
  td_executor* executor;
  int32_t most;       /* instructions */
  uint8_t* is_wanted; /* by instruction: until it is copied */
  int64_t* copies;    /* by instruction: the handle; 0: none */
  uint32_t count;
  rpc_out rows;
  rpc_error* error;
  bool failed;
} watch;

static int64_t copy_written(const watch* w, int32_t instruction, td_tensor_info* info) {
  const void* data;
  td_error failed;
  if (td_executor_written(w->executor, instruction, info, &data, &failed) != TD_OK) {
    rpc_fail_td(w->error, &failed, "");
    return 0;
  }
  int64_t handle = rpc_add_array(w->session, td_dtype_by_name(info->dtype), info->shape,
                                 info->ndim, NULL, w->error);
  const rpc_array* copy = NULL;
  if (handle != 0) copy = rpc_table_at(&w->session->arrays, handle, w->error);
  if (copy != NULL && info->bytes > 0) memcpy(copy->data, data, info->bytes);
  return handle;
}

static void note_written(void* context, int32_t instruction) {
  watch* w = context;
  td_tensor_info info;
  if (w->failed || !w->is_wanted[instruction]) return;
  int64_t handle = w->copies[instruction] = copy_written(w, instruction, &info);
  w->is_wanted[instruction] = 0;
  w->failed = handle == 0;
  if (w->failed) return;
  w->count++;
  rpc_put_list(&w->rows, 4);
  rpc_put_int(&w->rows, instruction);
  put_array(&w->rows, handle, &info);
}

static bool take_wanted(rpc_call* call, watch* w) {
  rpc_args wanted = rpc_take_list(&call->args);
  w->is_wanted = calloc((size_t)w->most + 1, sizeof *w->is_wanted);
  w->copies = calloc((size_t)w->most + 1, sizeof *w->copies);
  if (w->is_wanted == NULL || w->copies == NULL) return no_memory(call->error);
  while (wanted.left > 0 && !wanted.failed) {
    int64_t index = rpc_take_int(&wanted, 0, INT64_MAX);
    if (!wanted.failed && index < w->most) w->is_wanted[index] = 1;
  }
  rpc_args_leave(&call->args, &wanted);
  return rpc_args_end(&call->args);
}

static void end_watch(watch* w, bool ok) {
  for (int32_t i = 0; !ok && w->copies != NULL && i < w->most; i++)
    if (w->copies[i] != 0) rpc_drop_array(w->session, w->copies[i]);
  rpc_out_free(&w->rows);
  free(w->is_wanted);
  free(w->copies);
}

/* Runs once and returns copies of what the instructions that are named have written. */
bool rpc_model_watch(rpc_session* session, rpc_call* call) {
  run r;
  bool ok = take_run(session, call, false, &r);
  watch w = {.session = session, .error = call->error};
  if (ok) w.executor = r.model->executor;
  if (ok) w.most = td_executor_num_instructions(w.executor);
  ok = ok && take_wanted(call, &w);
  if (ok) {
    td_observe(w.executor, note_written, &w);
    ok = warm_up(&r, call->error) && !w.failed;
    td_observe(w.executor, NULL, NULL);
  }
  if (ok) {
    rpc_put_list(call->out, 1);
    rpc_put_list(call->out, w.count);
    rpc_put(call->out, w.rows.data, w.rows.size);
  }
  end_watch(&w, ok);
  release(&r);
  return ok;
}

/* ---- facts ----------------------------------------------------------------------------------- */

bool rpc_model_threads(rpc_session* session, rpc_call* call) {
  td_error failed;
  model* m = take_model(session, call);
  int32_t threads = (int32_t)rpc_take_int(&call->args, 0, TD_MAX_THREADS);
  if (!rpc_args_end(&call->args)) return false;
  if (threads > 0 && td_executor_set_num_threads(m->executor, threads, &failed) != TD_OK)
    return rpc_fail_td(call->error, &failed, m->name);
  rpc_put_list(call->out, 1);
  rpc_put_int(call->out, td_executor_num_threads(m->executor));
  return true;
}

bool rpc_model_seed(rpc_session* session, rpc_call* call) {
  model* m = take_model(session, call);
  int64_t seed = rpc_take_int(&call->args, INT64_MIN, INT64_MAX);
  if (!rpc_args_end(&call->args)) return false;
  td_executor_seed(m->executor, (uint64_t)seed);
  rpc_put_list(call->out, 0);
  return true;
}

/* A piece of the plan's text, and how long all of it is. */
bool rpc_model_plan(rpc_session* session, rpc_call* call) {
  model* m = take_model(session, call);
  int64_t offset = rpc_take_int(&call->args, 0, INT64_MAX);
  size_t bytes;
  if (!rpc_args_end(&call->args)) return false;
  const char* text = td_executor_plan(m->executor, &bytes);
  size_t start = (uint64_t)offset < bytes ? (size_t)offset : bytes;
  call->answer = text + start;
  call->answer_size = bytes - start < RPC_PIECE_BYTES ? bytes - start : RPC_PIECE_BYTES;
  rpc_put_list(call->out, 1);
  rpc_put_int(call->out, (int64_t)bytes);
  return true;
}

/* ---- kernels of a model ---------------------------------------------------------------------- */

static const char* manifest_text(const td_json* manifest, const char* table, const char* key) {
  const td_json* object = td_json_get(manifest, table);
  const td_json* found = object != NULL && object->type == TD_JSON_OBJECT ? td_json_get(object, key)
                                                                          : NULL;
  return found != NULL && found->type == TD_JSON_STRING ? found->text : "";
}

static bool check_table(const td_json* manifest, const td_json* table, rpc_error* error) {
  rpc_out text = {0};
  char found[17] = "";
  rpc_put_canonical(&text, table);
  if (!text.failed) td_hash64(text.data, text.size, found);
  rpc_out_free(&text);
  return strcmp(found, manifest_text(manifest, "checksums", "kernels")) == 0 ||
         rpc_fail_as(error, "ArtifactError",
                     "the table of kernels (in mod.json) does not match its hash");
}

static bool read_manifest(const model* m, const td_member* member, rpc_module* module,
                          const td_json** manifest, rpc_error* error) {
  td_error failed;
  td_json* root;
  char* text = td_zone_alloc(&module->zone, (size_t)member->bytes + 1, 1);
  if (text == NULL) return no_memory(error);
  if (td_read_at(m->fd, text, (size_t)member->bytes, member->offset, &failed) != TD_OK ||
      td_json_parse(text, (size_t)member->bytes, &module->zone, &root, &failed) != TD_OK)
    return rpc_fail_td(error, &failed, m->name);
  const td_json* table = root->type == TD_JSON_OBJECT ? td_json_get(root, "kernels") : NULL;
  if (table == NULL) {
    rpc_fail_as(error, "ArtifactError", "the artifact does not say what its kernels take: an older "
                "version has written it");
    return rpc_hint(error, "compile the model again, or time it as a whole");
  }
  *manifest = root;
  return check_table(root, table, error) && rpc_read_kernels(module, table, error);
}

static bool load_kernels(const model* m, rpc_module* module, rpc_error* error) {
  td_error failed;
  const td_json* manifest = NULL;
  td_wanted members[] = {{"mod.so", MOST_CODE, {0, 0, false}},
                         {"mod.json", MOST_MANIFEST, {0, 0, false}},
                         {"mod.params", INT64_MAX, {0, 0, false}}};
  if (td_is_shared_object(m->fd)) {
    rpc_fail_as(error, "ArtifactError", "a shared object does not say what its kernels take");
    return rpc_hint(error, "save the model as a .tar to call its kernels alone");
  }
  if (td_tar_find(m->fd, members, 3, &failed) != TD_OK)
    return rpc_fail_td(error, &failed, m->name);
  if (!read_manifest(m, &members[1].member, module, &manifest, error)) return false;
  if (module->count == 0)
    return rpc_fail_as(error, "ArtifactError", "the model has no kernels");
  return td_library_open_range(m->fd, members[0].member.offset, (size_t)members[0].member.bytes,
                               manifest_text(manifest, "hashes", "mod.so"), &module->library,
                               &failed) == TD_OK ||
         rpc_fail_td(error, &failed, m->name);
}

bool rpc_model_module(rpc_session* session, rpc_call* call) {
  const model* m = take_model(session, call);
  if (!rpc_args_end(&call->args)) return false;
  rpc_module* module = calloc(1, sizeof *module);
  if (module == NULL) return no_memory(call->error);
  if (load_kernels(m, module, call->error)) return rpc_add_module(session, module, call);
  snprintf(call->error->at, sizeof call->error->at, "%s", m->name);
  rpc_module_drop(module);
  return false;
}
