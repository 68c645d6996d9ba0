/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a plan: their types and where they lie. */
#include <stdio.h>
#include <string.h>

#include "reader.h"

/* ---- values ---------------------------------------------------------------------------------- */

static bool get_kind(td_reader* r, const td_json* object, td_value_kind* kind) {
  static const char* const NAMES[] = {"input", "output", "constant", "arena", "workspace",
                                       "view"};
  const char* text;
  if (!td_read_text(r, object, "kind", &text)) return false;
  size_t count = sizeof NAMES / sizeof NAMES[0] - (r->plan->is_dynamic ? 0 : 1);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(text, NAMES[i]) != 0) continue;
    *kind = (td_value_kind)i;
    return true;
  }
  td_fail(r->error, TD_PLAN, "%s: \"%.60s\" is not a kind of value", r->where, text);
  return false;
}

/* The shape as numbers, and in a dynamic plan as extents. */
static bool read_shape(td_reader* r, const td_json* object, td_value* value, uint32_t* ndim) {
  if (!r->plan->is_dynamic) return td_read_integers(r, object, "shape", &value->shape, ndim);
  if (!td_read_extents(r, object, "shape", &value->extents, ndim)) return false;
  int64_t* shape = td_zone_alloc(r->zone, *ndim, sizeof *shape);
  if (shape == NULL) return td_read_no_memory(r);
  for (uint32_t i = 0; i < *ndim; i++)
    shape[i] = value->extents[i].size == TD_NUMBER ? value->extents[i].number : TD_UNKNOWN;
  value->shape = shape;
  return true;
}

static bool get_tensor_type(td_reader* r, const td_json* object, td_value* value) {
  const char* dtype;
  uint32_t ndim;
  if (!td_read_text(r, object, "dtype", &dtype)) return false;
  value->dtype = td_dtype_by_name(dtype);
  if (value->dtype == NULL) {
    td_fail(r->error, TD_PLAN, "%s: \"%.60s\" is not an element type", r->where, dtype);
    return false;
  }
  if (!read_shape(r, object, value, &ndim)) return false;
  if (ndim > TD_MAX_NDIM) {
    td_fail(r->error, TD_PLAN, "%s: the shape has %u dimensions; %d are possible", r->where,
            (unsigned)ndim, TD_MAX_NDIM);
    return false;
  }
  value->ndim = (int32_t)ndim;
  return true;
}

static bool check_bytes(td_reader* r, const td_value* value) {
  size_t bytes;
  if (!td_tensor_bytes(value->dtype, value->shape, value->ndim, &bytes)) {
    td_fail(r->error, TD_PLAN, "%s: the shape does not fit into memory", r->where);
    return false;
  }
  if (value->kind == TD_VALUE_WORKSPACE || bytes == value->bytes) return true;
  td_fail(r->error, TD_PLAN, "%s: \"bytes\" is %zu but shape and element type need %zu", r->where,
          value->bytes, bytes);
  return false;
}

static bool check_place(td_reader* r, const td_value* value) {
  size_t arena = r->plan->arena_bytes;
  if (value->offset % TD_ALIGNMENT != 0) {
    td_fail(r->error, TD_PLAN, "%s: offset %zu is not a multiple of %zu", r->where, value->offset,
            TD_ALIGNMENT);
    return false;
  }
  if (value->bytes <= arena && value->offset <= arena - value->bytes) return true;
  td_fail(r->error, TD_PLAN, "%s: %zu bytes at offset %zu do not fit into the arena of %zu bytes",
          r->where, value->bytes, value->offset, arena);
  return false;
}

static bool is_known(const td_value* value) {
  for (int32_t i = 0; i < value->ndim; i++)
    if (value->shape[i] == TD_UNKNOWN) return false;
  return true;
}

/* The size of a value whose shape is known; 0 for others. */
static bool set_bytes(td_reader* r, td_value* value) {
  value->bytes = 0;
  if (!is_known(value)) return true;
  if (td_tensor_bytes(value->dtype, value->shape, value->ndim, &value->bytes)) return true;
  td_fail(r->error, TD_PLAN, "%s: the shape does not fit into memory", r->where);
  return false;
}

static bool read_view(td_reader* r, const td_json* object, td_value* value, uint32_t own) {
  if (!td_read_id(r, td_json_get(object, "of"), "of", own, &value->of) ||
      !td_read_extent(r, td_json_get(object, "offset"), "offset", false, &value->extra))
    return false;
  if (r->plan->values[value->of].kind != TD_VALUE_VIEW) return true;
  td_fail(r->error, TD_PLAN, "%s: value %u, which it is a part of, is a view itself", r->where,
          (unsigned)value->of);
  return false;
}

/* A value of a dynamic plan: its place is found by each run. */
static bool read_dynamic_value(td_reader* r, const td_json* object, td_value* value, uint32_t own) {
  value->of = own;
  if (!get_kind(r, object, &value->kind) || !get_tensor_type(r, object, value)) return false;
  if (value->kind == TD_VALUE_WORKSPACE)
    return td_read_extent(r, td_json_get(object, "bytes"), "bytes", false, &value->extra);
  if (!set_bytes(r, value)) return false;
  if (value->kind == TD_VALUE_VIEW) return read_view(r, object, value, own);
  if (value->kind != TD_VALUE_CONSTANT) return true;
  if (is_known(value)) return td_read_text(r, object, "param", &value->param);
  td_fail(r->error, TD_PLAN, "%s: the shape of a constant must be numbers", r->where);
  return false;
}

static bool read_value(td_reader* r, const td_json* object, td_value* value, uint32_t own) {
  if (r->plan->is_dynamic) return read_dynamic_value(r, object, value, own);
  value->of = own;
  if (!get_kind(r, object, &value->kind) || !get_tensor_type(r, object, value) ||
      !td_read_size(r, object, "bytes", &value->bytes) || !check_bytes(r, value))
    return false;
  if (value->kind == TD_VALUE_CONSTANT) return td_read_text(r, object, "param", &value->param);
  if (value->kind != TD_VALUE_ARENA && value->kind != TD_VALUE_WORKSPACE) return true;
  return td_read_size(r, object, "offset", &value->offset) && check_place(r, value);
}

bool td_read_values(td_reader* r, const td_json* root) {
  const td_json* list = td_read_list(r, root, "values");
  if (list == NULL) return false;
  td_value* values = td_zone_alloc(r->zone, list->count, sizeof *values);
  if (values == NULL) return td_read_no_memory(r);
  r->plan->values = values;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan value %u", (unsigned)r->plan->num_values);
    if (!read_value(r, item, &values[r->plan->num_values], r->plan->num_values)) return false;
    r->plan->num_values++;
  }
  return true;
}
