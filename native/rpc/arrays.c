/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

#define MOST_EXTENT (INT64_C(1) << 48)

void rpc_describe(const char* dtype, const int64_t* shape, int32_t ndim, char* text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "%s[", dtype);
  for (int32_t i = 0; i < ndim && used < size; i++) {
    const char* comma = i > 0 ? ", " : "";
    used += shape[i] < 0 ? (size_t)snprintf(text + used, size - used, "%s?", comma)
                         : (size_t)snprintf(text + used, size - used, "%s%lld", comma,
                                            (long long)shape[i]);
  }
  if (used < size) snprintf(text + used, size - used, "]");
}

int64_t rpc_add_array(rpc_session* session, const td_dtype* dtype, const int64_t* shape,
                      int32_t ndim, void* data, rpc_error* error) {
  rpc_array* array = calloc(1, sizeof *array);
  td_error failed;
  size_t bytes;
  int64_t handle = 0;
  bool ok = array != NULL || rpc_fail(error, "the device has not enough memory");
  if (ok && !td_tensor_bytes(dtype, shape, ndim, &bytes)) bytes = SIZE_MAX;
  if (ok && (bytes > INT64_MAX || (int64_t)bytes > session->memory - session->held)) {
    ok = rpc_fail(error, "an array of %llu bytes is more than the session may take: it holds %lld "
                  "of %lld", (unsigned long long)bytes, (long long)session->held,
                  (long long)session->memory);
    rpc_hint(error, "free arrays");
  }
  if (ok && data == NULL && (data = td_alloc(bytes > 0 ? bytes : 1, &failed)) == NULL)
    ok = rpc_fail_td(error, &failed, "");
  if (ok) {
    *array = (rpc_array){.dtype = dtype, .ndim = ndim, .bytes = bytes, .data = data};
    if (ndim > 0) memcpy(array->shape, shape, (size_t)ndim * sizeof *shape);
    handle = rpc_table_add(&session->arrays, array, error);
  }
  if (handle == 0) {
    td_free(data);
    free(array);
    return 0;
  }
  session->held += (int64_t)bytes;
  return handle;
}

void rpc_drop_array(rpc_session* session, int64_t handle) {
  rpc_array* array = rpc_table_remove(&session->arrays, handle);
  if (array == NULL) return;
  session->held -= (int64_t)array->bytes;
  td_free(array->data);
  free(array);
}

bool rpc_array_new(rpc_session* session, rpc_call* call) {
  char name[64];
  int64_t shape[TD_MAX_NDIM];
  rpc_text dtype_name = rpc_take_text(&call->args, 40);
  rpc_args sizes = rpc_take_list(&call->args);
  uint32_t ndim = sizes.left;
  if (!sizes.failed && ndim > TD_MAX_NDIM)
    return rpc_fail(call->error, "an array has at most %d dimensions", TD_MAX_NDIM);
  for (uint32_t i = 0; i < ndim; i++) shape[i] = rpc_take_int(&sizes, 0, MOST_EXTENT);
  rpc_args_leave(&call->args, &sizes);
  if (!rpc_args_end(&call->args)) return false;
  const td_dtype* dtype = rpc_copy_text(dtype_name, name, sizeof name) ? td_dtype_by_name(name)
                                                                       : NULL;
  if (dtype == NULL)
    return rpc_fail_as(call->error, "UsageError", "there is no element type '%.*s'",
                       (int)dtype_name.size, dtype_name.data);
  int64_t handle = rpc_add_array(session, dtype, shape, (int32_t)ndim, NULL, call->error);
  rpc_put_list(call->out, 1);
  rpc_put_int(call->out, handle);
  return handle != 0;
}

bool rpc_array_free(rpc_session* session, rpc_call* call) {
  rpc_args handles = rpc_take_list(&call->args);
  rpc_args checked = handles;
  while (checked.left > 0 && !checked.failed) (void)rpc_take_int(&checked, 0, INT64_MAX);
  rpc_args_leave(&call->args, &checked);
  if (!rpc_args_end(&call->args)) return false;
  while (handles.left > 0) rpc_drop_array(session, rpc_take_int(&handles, 0, INT64_MAX));
  rpc_put_list(call->out, 0);
  return true;
}

/* Some bytes of an array; NULL with an error. */
static uint8_t* bytes_of(rpc_session* session, int64_t handle, int64_t offset, size_t size,
                         rpc_error* error) {
  const rpc_array* array = rpc_table_at(&session->arrays, handle, error);
  if (array == NULL) return NULL;
  if ((uint64_t)offset <= array->bytes && size <= array->bytes - (size_t)offset)
    return (uint8_t*)array->data + offset;
  rpc_fail(error, "bytes %lld to %lld of an array of %zu", (long long)offset,
           (long long)offset + (long long)size, array->bytes);
  return NULL;
}

bool rpc_array_write(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  int64_t offset = rpc_take_int(&call->args, 0, MOST_EXTENT);
  if (!rpc_args_end(&call->args)) return false;
  uint8_t* at = bytes_of(session, handle, offset, call->blob.size, call->error);
  if (at == NULL) return false;
  if (call->blob.size > 0) memcpy(at, call->blob.data, call->blob.size);
  rpc_put_list(call->out, 0);
  return true;
}

bool rpc_array_read(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  int64_t offset = rpc_take_int(&call->args, 0, MOST_EXTENT);
  size_t size = (size_t)rpc_take_int(&call->args, 0, (int64_t)RPC_PIECE_BYTES);
  if (!rpc_args_end(&call->args)) return false;
  call->answer = bytes_of(session, handle, offset, size, call->error);
  call->answer_size = size;
  rpc_put_list(call->out, 0);
  return call->answer != NULL;
}

static bool is_alike(const rpc_array* a, const rpc_array* b) {
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

bool rpc_array_copy(rpc_session* session, rpc_call* call) {
  int64_t from = rpc_take_int(&call->args, 0, INT64_MAX);
  int64_t to = rpc_take_int(&call->args, 0, INT64_MAX);
  if (!rpc_args_end(&call->args)) return false;
  const rpc_array* source = rpc_table_at(&session->arrays, from, call->error);
  const rpc_array* target = source ? rpc_table_at(&session->arrays, to, call->error) : NULL;
  if (target == NULL) return false;
  if (!is_alike(source, target)) {
    char a[256], b[256];
    rpc_describe(source->dtype->name, source->shape, source->ndim, a, sizeof a);
    rpc_describe(target->dtype->name, target->shape, target->ndim, b, sizeof b);
    rpc_fail_as(call->error, "InputError", "%s cannot be copied to %s", a, b);
    return rpc_hint(call->error, "both must have the same shape and element type");
  }
  if (source->bytes > 0) memmove(target->data, source->data, source->bytes);
  rpc_put_list(call->out, 0);
  return true;
}

rpc_array** rpc_take_arrays(rpc_session* session, rpc_call* call, uint32_t* count) {
  rpc_args handles = rpc_take_list(&call->args);
  *count = handles.left;
  rpc_array** arrays = calloc((size_t)*count + 1, sizeof *arrays);
  if (arrays == NULL) rpc_fail(call->error, "the device has not enough memory");
  bool ok = arrays != NULL;
  for (uint32_t i = 0; ok && i < *count && !handles.failed; i++) {
    int64_t handle = rpc_take_int(&handles, 0, INT64_MAX);
    if (handles.failed) break;
    ok = (arrays[i] = rpc_table_at(&session->arrays, handle, call->error)) != NULL;
  }
  rpc_args_leave(&call->args, &handles);
  if (ok && !call->args.failed) return arrays;
  call->args.failed = true;
  free(arrays);
  return NULL;
}
