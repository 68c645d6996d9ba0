/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are called alone: their arguments are checked against what they take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Arguments of one kernel, checked and turned into addresses. */
typedef struct {
  const rpc_kernel* kernel;
  td_env env;
  rpc_array** arrays;
  void** buffers; /* of the arrays, then the workspace */
  int64_t* sizes;
  bool* is_known;
  const char** givers; /* which parameter has decided a size; NULL: the caller */
  void* workspace;
  bool is_cold; /* no cache holds the arguments when a call begins */
} binding;

static void release(binding* b) {
  free(b->arrays);
  free(b->buffers);
  free(b->sizes);
  free(b->is_known);
  free(b->givers);
  td_free(b->workspace);
}

/* ---- checking -------------------------------------------------------------------------------- */

static void describe(const rpc_array* array, char* text, size_t size) {
  rpc_describe(array->dtype->name, array->shape, array->ndim, text, size);
}

static bool wrong_size(const binding* b, uint32_t place, uint32_t axis, const char* wanted,
                       rpc_error* error) {
  char found[512];
  describe(b->arrays[place], found, sizeof found);
  return rpc_fail_as(error, "InputError", "argument '%.100s' of %.200s is %s but its dimension %u "
                     "must be %s", b->kernel->params[place].name, b->kernel->name, found,
                     (unsigned)axis, wanted);
}

static bool check_axis(binding* b, uint32_t place, uint32_t axis, rpc_error* error) {
  const rpc_extent* extent = &b->kernel->params[place].shape[axis];
  int64_t size = b->arrays[place]->shape[axis], which = extent->number;
  char wanted[400];
  if (extent->kind == RPC_FORMULA) return true; /* when the sizes are known */
  if (extent->kind == RPC_NUMBER) {
    snprintf(wanted, sizeof wanted, "%lld", (long long)extent->number);
    return size == extent->number || wrong_size(b, place, axis, wanted, error);
  }
  if (!b->is_known[which]) {
    b->sizes[which] = size;
    b->is_known[which] = true;
    b->givers[which] = b->kernel->params[place].name;
  }
  if (size == b->sizes[which]) return true;
  snprintf(wanted, sizeof wanted, "%.100s = %lld, the size that %s%.100s has given", extent->text,
           (long long)b->sizes[which], b->givers[which] != NULL ? "argument " : "",
           b->givers[which] != NULL ? b->givers[which] : "sizes");
  return wrong_size(b, place, axis, wanted, error);
}

static bool check_argument(binding* b, uint32_t place, rpc_error* error) {
  const rpc_param* param = &b->kernel->params[place];
  const rpc_array* array = b->arrays[place];
  if (array->dtype != param->dtype || (uint32_t)array->ndim != param->ndim) {
    char found[512];
    describe(array, found, sizeof found);
    return rpc_fail_as(error, "InputError", "argument '%.100s' of %.200s is %s but %s with %u "
                       "dimensions is expected", param->name, b->kernel->name, found,
                       param->dtype->name, (unsigned)param->ndim);
  }
  for (uint32_t axis = 0; axis < param->ndim; axis++)
    if (!check_axis(b, place, axis, error)) return false;
  b->buffers[place] = array->data;
  return true;
}

/* Finds one more size that only stands in computed extents: 1, 0 where there is none, -1 for an
 * error. */
static int solve_one(binding* b, rpc_error* error) {
  for (uint32_t place = 0; place < b->kernel->num_params; place++) {
    const rpc_param* param = &b->kernel->params[place];
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
      const rpc_extent* extent = &param->shape[axis];
      if (extent->kind != RPC_FORMULA) continue;
      int64_t size = rpc_formula_unknown(extent->formula, b->is_known);
      if (size < 0) continue;
      char wanted[400];
      snprintf(wanted, sizeof wanted, "%.200s for a size %.100s of 0 or more", extent->text,
               b->kernel->sizes[size]);
      if (!rpc_formula_solved(extent->formula, b->sizes, size, b->arrays[place]->shape[axis])) {
        (void)wrong_size(b, place, axis, wanted, error);
        return -1;
      }
      b->is_known[size] = true;
      b->givers[size] = param->name;
      return 1;
    }
  }
  return 0;
}

static bool solve(binding* b, rpc_error* error) {
  int found;
  do found = solve_one(b, error);
  while (found > 0);
  if (found < 0) return false;
  for (uint32_t i = 0; i < b->kernel->num_sizes; i++) {
    if (b->is_known[i]) continue;
    rpc_fail_as(error, "InputError", "size '%.100s' of kernel %.200s is not given",
                b->kernel->sizes[i], b->kernel->name);
    return rpc_hint(error, "say what it is: sizes={'%.100s': 1}", b->kernel->sizes[i]);
  }
  return true;
}

static bool check_computed(binding* b, rpc_error* error) {
  for (uint32_t place = 0; place < b->kernel->num_params; place++) {
    const rpc_param* param = &b->kernel->params[place];
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
      const rpc_extent* extent = &param->shape[axis];
      char wanted[400];
      int64_t value = 0;
      if (extent->kind != RPC_FORMULA) continue;
      bool is_number = rpc_formula_value(extent->formula, b->sizes, &value);
      if (is_number && value == b->arrays[place]->shape[axis]) continue;
      snprintf(wanted, sizeof wanted, "%.200s = %lld", extent->text, (long long)value);
      return wrong_size(b, place, axis, wanted, error);
    }
  }
  return true;
}

static bool give_workspace(binding* b, rpc_error* error) {
  const rpc_extent* extent = &b->kernel->workspace;
  int64_t bytes = extent->number;
  td_error failed;
  if (extent->kind == RPC_FORMULA && !rpc_formula_value(extent->formula, b->sizes, &bytes))
    return rpc_fail(error, "the scratch memory of %.200s cannot be computed", b->kernel->name);
  if (bytes < 0) return rpc_fail(error, "%.200s asks for %lld bytes", b->kernel->name,
                                 (long long)bytes);
  if (bytes == 0) return true;
  b->workspace = td_alloc((size_t)bytes, &failed);
  b->buffers[b->kernel->num_params] = b->workspace;
  return b->workspace != NULL || rpc_fail_td(error, &failed, "");
}

static bool make_room(binding* b, rpc_error* error) {
  size_t sizes = (size_t)b->kernel->num_sizes + 1;
  td_error failed;
  b->buffers = calloc((size_t)b->kernel->num_params + 1, sizeof *b->buffers);
  b->sizes = calloc(sizes, sizeof *b->sizes);
  b->is_known = calloc(sizes, sizeof *b->is_known);
  b->givers = calloc(sizes, sizeof *b->givers);
  if (b->buffers == NULL || b->sizes == NULL || b->is_known == NULL || b->givers == NULL)
    return rpc_fail(error, "the device has not enough memory");
  return td_env_init(&b->env, 0, &failed) == TD_OK || rpc_fail_td(error, &failed, "");
}

static bool check_count(const binding* b, uint32_t count, rpc_error* error) {
  if (count == b->kernel->num_params) return true;
  rpc_fail_as(error, "InputError", "%.200s takes %u arguments but is given %u", b->kernel->name,
              (unsigned)b->kernel->num_params, (unsigned)count);
  return rpc_hint(error, "the first is %.200s",
                  b->kernel->num_params > 0 ? b->kernel->params[0].name : "none");
}

/* Takes sizes, a list of [name, number]. */
static void take_sizes(binding* b, rpc_call* call) {
  rpc_args rows = rpc_take_list(&call->args);
  while (rows.left > 0 && !rows.failed) {
    rpc_args row = rpc_take_list(&rows);
    rpc_text name = rpc_take_text(&row, 4096);
    int64_t value = rpc_take_int(&row, 0, INT64_MAX);
    uint32_t i = 0;
    rpc_args_leave(&rows, &row);
    if (rows.failed) break;
    while (i < b->kernel->num_sizes && (strlen(b->kernel->sizes[i]) != name.size ||
                                        memcmp(b->kernel->sizes[i], name.data, name.size) != 0))
      i++;
    if (i == b->kernel->num_sizes) {
      rpc_fail_as(call->error, "InputError", "kernel %.200s has no size '%.*s'", b->kernel->name,
                  (int)(name.size < 100 ? name.size : 100), name.data);
      rows.failed = true;
      break;
    }
    b->sizes[i] = value;
    b->is_known[i] = true;
  }
  rpc_args_leave(&call->args, &rows);
}

static bool bind(binding* b, uint32_t count, rpc_error* error) {
  if (!check_count(b, count, error)) return false;
  for (uint32_t i = 0; i < count; i++)
    if (!check_argument(b, i, error)) return false;
  return solve(b, error) && check_computed(b, error) && give_workspace(b, error);
}

/* ---- kernels of a call ----------------------------------------------------------------------- */

/* Takes a module and a name. */
static const rpc_kernel* take_kernel(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  rpc_text name = rpc_take_text(&call->args, 4096);
  if (call->args.failed) return NULL;
  const rpc_module* module = rpc_table_at(&session->modules, handle, call->error);
  if (module == NULL) return NULL;
  for (uint32_t i = 0; i < module->count; i++) {
    const char* own = module->kernels[i].name;
    if (strlen(own) == name.size && memcmp(own, name.data, name.size) == 0)
      return &module->kernels[i];
  }
  rpc_fail_as(call->error, "UsageError", "the module has no kernel '%.*s'",
              (int)(name.size < 200 ? name.size : 200), name.data);
  return NULL;
}

/* Takes a kernel with its arguments and sizes. What was taken is released also when this fails. */
static bool take_binding(rpc_session* session, rpc_call* call, binding* b, uint32_t* count) {
  *b = (binding){.kernel = take_kernel(session, call)};
  bool ok = b->kernel != NULL && make_room(b, call->error) &&
            (b->arrays = rpc_take_arrays(session, call, count)) != NULL;
  if (ok) take_sizes(b, call);
  call->args.failed = call->args.failed || !ok; /* the error stands, whatever is taken next */
  return !call->args.failed;
}

bool rpc_kernel_call(rpc_session* session, rpc_call* call) {
  binding b;
  uint32_t count;
  td_error failed;
  bool ok = take_binding(session, call, &b, &count) && rpc_args_end(&call->args) &&
            bind(&b, count, call->error);
  if (ok && td_kernel_call(b.kernel->kernel, &b.env, b.buffers, b.sizes, &failed) != TD_OK)
    ok = rpc_fail_td(call->error, &failed, "");
  release(&b);
  rpc_put_list(call->out, 0);
  return ok;
}

/* ---- timing ---------------------------------------------------------------------------------- */

static bool time_calls(const binding* b, int64_t number, double* seconds, rpc_error* error) {
  int64_t elapsed;
  td_error failed;
  if (td_kernel_time(b->kernel->kernel, &b->env, b->buffers, b->sizes, number, &elapsed,
                     &failed) != TD_OK)
    return rpc_fail_td(error, &failed, "");
  *seconds = (double)elapsed * 1e-9;
  return true;
}

/* Writes every byte as it is, which takes its line from the caches of other cores. */
static void write_again(void* memory, size_t bytes) {
  volatile uint8_t* at = memory;
  for (size_t i = 0; i < bytes; i++) at[i] = at[i];
}

static bool time_cold_calls(const binding* b, int64_t number, double* seconds, rpc_error* error) {
  double one, sum = 0;
  for (int64_t i = 0; i < number; i++) {
    for (uint32_t k = 0; k < b->kernel->num_params; k++)
      write_again(b->arrays[k]->data, b->arrays[k]->bytes);
    if (!rpc_empty_caches(error) || !time_calls(b, 1, &one, error)) return false;
    sum += one;
  }
  *seconds = sum;
  return true;
}

static bool time_kernel(void* context, int64_t number, double* seconds, rpc_error* error) {
  const binding* b = context;
  return b->is_cold ? time_cold_calls(b, number, seconds, error)
                    : time_calls(b, number, seconds, error);
}

bool rpc_kernel_time(rpc_session* session, rpc_call* call) {
  binding b;
  uint32_t count;
  bool ok = take_binding(session, call, &b, &count);
  rpc_repeats repeats = rpc_take_repeats(&call->args);
  b.is_cold = rpc_take_int(&call->args, 0, 1) != 0;
  ok = ok && rpc_args_end(&call->args) && bind(&b, count, call->error) &&
       rpc_measure(time_kernel, &b, repeats, call);
  release(&b);
  return ok;
}

/* ---- rotations ------------------------------------------------------------------------------- */

typedef struct {
  binding* bindings;
  uint32_t count, next;
} rotation;

static bool time_rotation(rotation* r, int64_t number, double* seconds, rpc_error* error) {
  double one, sum = 0;
  for (int64_t i = 0; i < number; i++) {
    if (!time_calls(&r->bindings[r->next], 1, &one, error)) return false;
    r->next = (r->next + 1) % r->count;
    sum += one;
  }
  *seconds = sum / (double)number;
  return true;
}

/* Binds the kernel to every list of arrays. */
static bool take_rotation(rpc_session* session, rpc_call* call, const rpc_kernel* kernel,
                          rotation* r) {
  rpc_call rows = *call;
  rows.args = rpc_take_list(&call->args);
  uint32_t lists = rows.args.left;
  if (call->args.failed) return false;
  if (lists == 0) return rpc_fail(call->error, "there is nothing to call the kernel with");
  r->bindings = calloc(lists, sizeof *r->bindings);
  if (r->bindings == NULL) return rpc_fail(call->error, "the device has not enough memory");
  while (r->count < lists) {
    uint32_t count;
    binding* b = &r->bindings[r->count++];
    b->kernel = kernel;
    if (!make_room(b, call->error)) return false;
    b->arrays = rpc_take_arrays(session, &rows, &count);
    if (b->arrays == NULL || !bind(b, count, call->error)) return false;
  }
  return true;
}

bool rpc_kernel_rotate(rpc_session* session, rpc_call* call) {
  rotation r = {0};
  double seconds = 0;
  const rpc_kernel* kernel = take_kernel(session, call);
  bool ok = kernel != NULL && take_rotation(session, call, kernel, &r);
  int64_t number = ok ? rpc_take_int(&call->args, 1, RPC_MOST_REPEATS) : 0;
  int64_t repeat = ok ? rpc_take_int(&call->args, 1, RPC_MOST_REPEATS) : 0;
  ok = ok && rpc_args_end(&call->args);
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, (uint32_t)repeat);
  for (int64_t i = 0; ok && i < repeat; i++) {
    ok = time_rotation(&r, number, &seconds, call->error);
    rpc_put_float(call->out, seconds);
  }
  for (uint32_t i = 0; i < r.count; i++) release(&r.bindings[i]);
  free(r.bindings);
  return ok;
}
