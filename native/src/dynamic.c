/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of plans whose sizes each run decides.
 *
 * A run walks the plan's segments. Entering one it computes the sizes that have become known, gives
 * every value whose life starts there its place in the arena (first fit, by position; a life goes
 * from the first to the last instruction that uses the value or a view of it), and hands pointers
 * and sizes to the instructions. Where all sizes are those of the last run, its places are used
 * again. The arena is one block that grows to what the largest run needs; memory that a later
 * segment needs on top while earlier values live is added as a further block for that run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"

/* A part of the arena, from the end of the one before. */
typedef struct {
  char* memory;
  size_t end;
} chunk;

/* Things of which each belongs to a segment, grouped: those of segment s are
 * items[start[s]] to items[start[s + 1]]. */
typedef struct {
  uint32_t *items, *start;
} grouping;

struct td_dynamic {
  int64_t* sizes;     /* by size */
  int64_t** shapes;   /* by value */
  size_t* bytes;      /* by value */
  size_t* offsets;    /* by value: in the arena; of a view in the whole */
  void** pointers;    /* by value; not of views */
  uint32_t *first, *last; /* by value: the instructions of its life; not of views */
  uint32_t* owners;   /* of arena memory in use, by offset */
  uint32_t num_owners;
  bool* in_use;       /* by value */
  grouping new_sizes, new_values;
  chunk* chunks;
  uint32_t num_chunks;
  uint32_t valid;     /* segments whose places hold for `sizes` */
  size_t memory;      /* bytes of this machine */
  int64_t* given;     /* the sizes that a body is given */
};

static int32_t no_memory(td_error* error) {
  return td_fail(error, TD_MEMORY, "not enough memory for the executor");
}

/* ---- building -------------------------------------------------------------------------------- */

typedef uint32_t (*segment_fn)(const td_plan* plan, uint32_t item);

static uint32_t segment_of_size(const td_plan* plan, uint32_t k) { return plan->sizes[k].segment; }

static uint32_t segment_of_value(const td_plan* plan, uint32_t v) {
  return plan->values[v].segment;
}

static bool group_by_segment(td_executor* e, uint32_t count, segment_fn segment, grouping* made) {
  const td_plan* plan = &e->plan;
  made->items = td_zone_alloc(&e->zone, count, sizeof *made->items);
  made->start = td_zone_alloc(&e->zone, (size_t)plan->num_segments + 2, sizeof *made->start);
  if (made->items == NULL || made->start == NULL) return false;
  for (uint32_t i = 0; i < count; i++) made->start[segment(plan, i) + 2]++;
  for (uint32_t s = 2; s < plan->num_segments + 2; s++) made->start[s] += made->start[s - 1];
  for (uint32_t i = 0; i < count; i++) made->items[made->start[segment(plan, i) + 1]++] = i;
  return true;
}

static void set_lives(td_executor* e) {
  const td_plan* plan = &e->plan;
  td_dynamic* d = e->dynamic;
  for (uint32_t v = 0; v < plan->num_values; v++) d->first[v] = UINT32_MAX;
  for (uint32_t i = 0; i < plan->num_instructions; i++) {
    for (uint32_t a = 0; a < plan->instructions[i].num_args; a++) {
      uint32_t owner = plan->values[plan->instructions[i].args[a]].of;
      if (d->first[owner] == UINT32_MAX) d->first[owner] = i;
      d->last[owner] = i;
    }
  }
}

static bool make_shapes(td_executor* e) {
  td_dynamic* d = e->dynamic;
  for (uint32_t v = 0; v < e->plan.num_values; v++) {
    d->shapes[v] = td_zone_alloc(&e->zone, (size_t)e->plan.values[v].ndim, sizeof **d->shapes);
    if (d->shapes[v] == NULL) return false;
  }
  return true;
}

int32_t td_dynamic_create(td_executor* e, void** base, td_error* error) {
  const td_plan* plan = &e->plan;
  td_zone* zone = &e->zone;
  td_dynamic* d = e->dynamic = td_zone_alloc(zone, 1, sizeof *d);
  if (d == NULL) return no_memory(error);
  size_t count = plan->num_values;
  d->sizes = td_zone_alloc(zone, plan->num_sizes, sizeof *d->sizes);
  d->shapes = td_zone_alloc(zone, count, sizeof *d->shapes);
  d->bytes = td_zone_alloc(zone, count, sizeof *d->bytes);
  d->offsets = td_zone_alloc(zone, count, sizeof *d->offsets);
  d->first = td_zone_alloc(zone, count, sizeof *d->first);
  d->last = td_zone_alloc(zone, count, sizeof *d->last);
  d->owners = td_zone_alloc(zone, count, sizeof *d->owners);
  d->in_use = td_zone_alloc(zone, count, sizeof *d->in_use);
  d->chunks = td_zone_alloc(zone, plan->num_segments, sizeof *d->chunks);
  d->given = td_zone_alloc(zone, plan->num_given, sizeof *d->given);
  d->pointers = base;
  bool ok = d->sizes != NULL && d->shapes != NULL && d->bytes != NULL && d->offsets != NULL &&
            d->first != NULL && d->last != NULL && d->owners != NULL && d->in_use != NULL &&
            d->chunks != NULL && d->given != NULL && make_shapes(e) &&
            group_by_segment(e, plan->num_sizes, segment_of_size, &d->new_sizes) &&
            group_by_segment(e, plan->num_values, segment_of_value, &d->new_values);
  if (!ok) return no_memory(error);
  d->memory = td_physical_memory();
  set_lives(e);
  return TD_OK;
}

static void free_chunks(td_dynamic* d) {
  for (uint32_t i = 0; i < d->num_chunks; i++) td_free(d->chunks[i].memory);
  d->num_chunks = 0;
  d->valid = 0;
}

void td_dynamic_free(td_executor* e) {
  if (e->dynamic != NULL && e->dynamic->chunks != NULL) free_chunks(e->dynamic);
}

static size_t capacity(const td_dynamic* d) {
  return d->num_chunks == 0 ? 0 : d->chunks[d->num_chunks - 1].end;
}

size_t td_dynamic_arena_bytes(const td_executor* e) { return capacity(e->dynamic); }

int32_t td_dynamic_result(const td_executor* e, uint32_t index, td_tensor_info* info,
                          td_error* error) {
  uint32_t v = e->plan.outputs[index].value;
  if (e->dynamic->valid < e->plan.num_segments)
    return td_fail(error, TD_ARGUMENT, "the model has not run yet");
  td_dynamic_type(e, v, info);
  return TD_OK;
}

void td_dynamic_type(const td_executor* e, uint32_t v, td_tensor_info* info) {
  info->shape = e->dynamic->shapes[v];
  info->bytes = e->dynamic->bytes[v];
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t extent_of(const td_dynamic* d, td_extent extent) {
  return extent.size == TD_NUMBER ? extent.number : d->sizes[extent.size];
}

/* False when the result does not fit or the divisor is not positive. */
static bool compute(td_size_op op, int64_t a, int64_t b, int64_t* result) {
  switch (op) {
    case TD_SIZE_ADD: return !__builtin_add_overflow(a, b, result);
    case TD_SIZE_SUB: return !__builtin_sub_overflow(a, b, result);
    case TD_SIZE_MUL: return !__builtin_mul_overflow(a, b, result);
    case TD_SIZE_MIN: *result = a < b ? a : b; return true;
    case TD_SIZE_MAX: *result = a > b ? a : b; return true;
    case TD_SIZE_BROADCAST: *result = a == 1 ? b : a; return true;
    default: break;
  }
  if (b <= 0) return false;
  int64_t rest = a % b < 0 ? a % b + b : a % b;
  *result = op == TD_SIZE_FLOORMOD ? rest : a / b - (a % b < 0 ? 1 : 0);
  return true;
}

/* Computes the sizes that become known with segment s; those of inputs and data are there. */
static int32_t compute_sizes(td_executor* e, uint32_t s, td_error* error) {
  td_dynamic* d = e->dynamic;
  for (uint32_t i = d->new_sizes.start[s]; i < d->new_sizes.start[s + 1]; i++) {
    uint32_t k = d->new_sizes.items[i];
    const td_size* size = &e->plan.sizes[k];
    if (size->op <= TD_SIZE_DATA) continue;
    int64_t result, a = extent_of(d, size->a), b = extent_of(d, size->b);
    if (!compute(size->op, a, b, &result))
      return td_fail(error, TD_INPUT, "these inputs make a size of the model impossible to compute "
                     "(size %u of the plan, from %lld and %lld)", (unsigned)k, (long long)a,
                     (long long)b);
    if (d->sizes[k] != result && d->valid > s) d->valid = s;
    d->sizes[k] = result;
  }
  return TD_OK;
}

static bool holds(td_rule rule, int64_t a, int64_t b) {
  if (rule == TD_RULE_EQUAL) return a == b;
  if (rule == TD_RULE_NEVER) return false;
  if (rule == TD_RULE_WITHIN || rule == TD_RULE_ASKED) return a <= b;
  return rule == TD_RULE_KEPT ? a != 1 : a > 0 || b == 0;
}

static int32_t refuse_sizes(const td_size_check* check, int64_t a, int64_t b, td_error* error) {
  const char* hint = "check the shapes of the inputs";
  int32_t code = TD_INPUT;
  if (check->rule == TD_RULE_EQUAL) {
    td_fail(error, TD_INPUT, "with these inputs %.200s combines tensors of different sizes: %lld "
            "and %lld", check->origin, (long long)a, (long long)b);
  } else if (check->rule == TD_RULE_WITHIN) {
    td_fail(error, TD_INPUT, "with these inputs %.200s reads %lld elements along axis %zu of a "
            "tensor that has %lld", check->origin, (long long)a, check->axis,
            (long long)b);
  } else if (check->rule == TD_RULE_NEVER) {
    code = TD_SIZES;
    td_fail(error, code, "these inputs take a branch that cannot run, %.400s", check->origin);
    hint = "give other inputs, or compile the model for the sizes that this branch is made for";
  } else if (check->rule == TD_RULE_ASKED) {
    td_fail(error, TD_INPUT, "these inputs have sizes that the model was not made for: it asks for "
            "%.400s", check->origin);
    hint = "give other inputs, or make the model for these sizes too";
  } else if (check->rule == TD_RULE_KEPT) {
    code = TD_SIZES;
    td_fail(error, code, "with these inputs %.200s, which names no axes, drops axis %zu too, "
            "and the rank of its result changes", check->origin, check->axis);
    hint = "give the node its axes, or compile the model for these sizes";
  } else {
    td_fail(error, TD_INPUT, "with these inputs axis %zu of what %.200s reads is empty, its result "
            "is not", check->axis, check->origin);
  }
  return td_hint(error, code, "%s", hint);
}

/* Checks the sizes that must satisfy something, as far as they became known with segment s. */
static int32_t check_sizes(const td_executor* e, uint32_t s, td_error* error) {
  for (uint32_t k = 0; k < e->plan.num_checks; k++) {
    const td_size_check* check = &e->plan.checks[k];
    if (check->segment != s) continue;
    int64_t a = extent_of(e->dynamic, check->a), b = extent_of(e->dynamic, check->b);
    if (!holds(check->rule, a, b)) return refuse_sizes(check, a, b, error);
  }
  return TD_OK;
}

static void set_size(td_dynamic* d, uint32_t k, int64_t number, uint32_t segment) {
  if (d->sizes[k] != number && d->valid > segment) d->valid = segment;
  d->sizes[k] = number;
}

/* Reads the sizes that instruction i takes from data. */
static int32_t read_sizes(td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const int64_t* data = e->steps[i].buffers[0];
  for (uint32_t k = 0; k < instruction->num_dims; k++) {
    const td_size* size = &e->plan.sizes[instruction->sizes[k]];
    if (data[k] < 0) {
      td_fail(error, TD_INPUT, "the size %.60s, which %.300s computes, is %lld", size->name,
              *instruction->origin ? instruction->origin : "the model", (long long)data[k]);
      return td_hint(error, TD_INPUT, "%s", "check the values of the inputs it is computed from; "
                     "a shape of another number of elements gives -1");
    }
    set_size(e->dynamic, instruction->sizes[k], data[k], size->segment);
  }
  return TD_OK;
}

int64_t* td_dynamic_given(const td_executor* e) { return e->dynamic->given; }

int64_t td_dynamic_extent(const td_executor* e, td_extent extent) {
  return extent_of(e->dynamic, extent);
}

const int64_t* td_dynamic_shape(const td_executor* e, uint32_t v) { return e->dynamic->shapes[v]; }

td_tensor td_dynamic_output(const td_executor* e, uint32_t index, size_t* bytes) {
  uint32_t v = e->plan.outputs[index].value;
  *bytes = e->dynamic->bytes[v];
  return (td_tensor){e->dynamic->pointers[v], e->dynamic->shapes[v], e->plan.values[v].ndim};
}

void td_dynamic_swap(td_executor* e, uint32_t index, void** memory, size_t* bytes) {
  td_binding* p = &e->outputs[index];
  void* own = p->own;
  size_t own_bytes = p->own_bytes;
  p->own = *memory;
  p->own_bytes = *bytes;
  *memory = own;
  *bytes = own_bytes;
}

void td_dynamic_set_size(td_executor* e, uint32_t k, int64_t number) {
  set_size(e->dynamic, k, number, e->plan.sizes[k].segment);
}

/* ---- types ----------------------------------------------------------------------------------- */

static const char* origin_of(const td_executor* e, uint32_t v) {
  uint32_t first = e->dynamic->first[e->plan.values[v].of];
  return first == UINT32_MAX ? "" : e->plan.instructions[first].origin;
}

/* Writes a shape, as far as it fits, for a message. */
static void shape_text(const int64_t* shape, int32_t ndim, char* text, size_t bytes) {
  size_t used = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < ndim && used + 32 < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i > 0 ? ", " : "",
                             (long long)shape[i]);
}

static int32_t bad_shape(const td_executor* e, uint32_t v, td_error* error) {
  char text[256];
  shape_text(e->dynamic->shapes[v], e->plan.values[v].ndim, text, sizeof text);
  td_fail(error, TD_INPUT, "with these inputs %.200s makes a value of the shape [%s]",
          origin_of(e, v), text);
  return td_hint(error, TD_INPUT, "check the sizes of the inputs");
}

static int32_t settle_type(td_executor* e, uint32_t v, td_error* error) {
  const td_value* value = &e->plan.values[v];
  td_dynamic* d = e->dynamic;
  for (int32_t i = 0; i < value->ndim; i++) d->shapes[v][i] = extent_of(d, value->extents[i]);
  if (!td_tensor_bytes(value->dtype, d->shapes[v], value->ndim, &d->bytes[v]))
    return bad_shape(e, v, error);
  if (value->kind != TD_VALUE_WORKSPACE && value->kind != TD_VALUE_VIEW) return TD_OK;
  int64_t extra = extent_of(d, value->extra);
  if (extra < 0 || (uint64_t)extra > SIZE_MAX / 4) return bad_shape(e, v, error);
  if (value->kind == TD_VALUE_WORKSPACE) d->bytes[v] = (size_t)extra;
  if (value->kind == TD_VALUE_VIEW) d->offsets[v] = (size_t)extra;
  return TD_OK;
}

static int32_t check_fits(const td_executor* e, uint32_t v, td_error* error) {
  const td_dynamic* d = e->dynamic;
  if (d->bytes[v] <= d->memory) return TD_OK;
  return td_fail(error, TD_MEMORY, "with these inputs %.200s needs %zu bytes of memory; this machine "
                 "has %zu", origin_of(e, v), d->bytes[v], d->memory);
}

static int32_t check_view(const td_executor* e, uint32_t v, td_error* error) {
  const td_dynamic* d = e->dynamic;
  size_t whole = d->bytes[e->plan.values[v].of];
  if (d->offsets[v] % TD_ALIGNMENT == 0 && d->bytes[v] <= whole &&
      d->offsets[v] <= whole - d->bytes[v])
    return TD_OK;
  return td_fail(error, TD_PLAN, "plan value %u: %zu bytes at offset %zu are no part of a value of "
                 "%zu bytes", (unsigned)v, d->bytes[v], d->offsets[v], whole);
}

static int32_t settle_types(td_executor* e, uint32_t s, td_error* error) {
  const grouping* values = &e->dynamic->new_values;
  for (uint32_t i = values->start[s]; i < values->start[s + 1]; i++) {
    int32_t code = settle_type(e, values->items[i], error);
    if (code == TD_OK) code = check_fits(e, values->items[i], error);
    if (code != TD_OK) return code;
  }
  for (uint32_t i = values->start[s]; i < values->start[s + 1]; i++) {
    uint32_t v = values->items[i];
    int32_t code = e->plan.values[v].kind == TD_VALUE_VIEW ? check_view(e, v, error) : TD_OK;
    if (code != TD_OK) return code;
  }
  return TD_OK;
}

static int32_t settle_step(td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const td_dynamic* d = e->dynamic;
  td_step* step = &e->steps[i];
  if (instruction->op == TD_OP_COPY) {
    step->bytes = d->bytes[instruction->args[0]];
    if (step->bytes == d->bytes[instruction->args[1]]) return TD_OK;
    return td_fail(error, TD_PLAN, "plan instruction %u: a copy from %zu bytes to %zu bytes",
                   (unsigned)i, step->bytes, d->bytes[instruction->args[1]]);
  }
  if (instruction->op == TD_OP_RESULT || instruction->op == TD_OP_CHECK)
    step->bytes = d->bytes[instruction->args[0]];
  for (uint32_t k = 0; step->dims != NULL && k < instruction->num_dims; k++) {
    step->dims[k] = extent_of(d, instruction->extents[k]);
    if (step->dims[k] < 0)
      return td_fail(error, TD_INPUT, "with these inputs %.200s works on a size of %lld",
                     instruction->origin, (long long)step->dims[k]);
  }
  return TD_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

static size_t padded(size_t bytes) {
  return ((bytes > 0 ? bytes : 1) + TD_ALIGNMENT - 1) / TD_ALIGNMENT * TD_ALIGNMENT;
}

/* The first offset from `offset` on where no block of memory ends inside the value. */
static size_t inside_chunk(const td_dynamic* d, size_t offset, size_t bytes) {
  for (uint32_t c = 0; c < d->num_chunks; c++)
    if (offset < d->chunks[c].end && offset + bytes > d->chunks[c].end) offset = d->chunks[c].end;
  return offset;
}

/* Gives value v the lowest free place. `whole` says that the arena will be one block. */
static void place(td_dynamic* d, uint32_t v, bool whole) {
  size_t bytes = padded(d->bytes[v]), offset = 0;
  uint32_t at = 0;
  for (;; at++) {
    if (!whole) offset = inside_chunk(d, offset, bytes);
    if (at == d->num_owners || offset + bytes <= d->offsets[d->owners[at]]) break;
    size_t end = d->offsets[d->owners[at]] + padded(d->bytes[d->owners[at]]);
    if (end > offset) offset = end;
  }
  memmove(&d->owners[at + 1], &d->owners[at], (d->num_owners - at) * sizeof *d->owners);
  d->owners[at] = v;
  d->num_owners++;
  d->offsets[v] = offset;
  d->in_use[v] = true;
}

static void release(td_dynamic* d, uint32_t v) {
  uint32_t at = 0;
  while (d->owners[at] != v) at++;
  d->num_owners--;
  memmove(&d->owners[at], &d->owners[at + 1], (d->num_owners - at) * sizeof *d->owners);
  d->in_use[v] = false;
}

static bool is_placed(const td_executor* e, uint32_t v) {
  td_value_kind kind = e->plan.values[v].kind;
  return kind == TD_VALUE_ARENA || kind == TD_VALUE_WORKSPACE;
}

static int compare_offsets(uint32_t a, uint32_t b, const td_dynamic* d) {
  return d->offsets[a] < d->offsets[b] ? -1 : d->offsets[a] > d->offsets[b];
}

/* The owners whose lives go on from before instruction `begin`. */
static void gather_owners(td_executor* e, uint32_t begin) {
  td_dynamic* d = e->dynamic;
  d->num_owners = 0;
  for (uint32_t v = 0; v < e->plan.num_values; v++) {
    d->in_use[v] = is_placed(e, v) && d->first[v] < begin && d->last[v] >= begin;
    if (!d->in_use[v]) continue;
    uint32_t at = d->num_owners++;
    for (; at > 0 && compare_offsets(d->owners[at - 1], v, d) > 0; at--)
      d->owners[at] = d->owners[at - 1];
    d->owners[at] = v;
  }
}

/* Places the values of one instruction; returns the end of the arena it needs. */
static size_t place_for(td_executor* e, uint32_t i, bool whole) {
  const td_instruction* instruction = &e->plan.instructions[i];
  td_dynamic* d = e->dynamic;
  size_t need = 0;
  for (uint32_t a = 0; a < instruction->num_args; a++) {
    uint32_t v = e->plan.values[instruction->args[a]].of;
    if (d->first[v] != i || d->in_use[v] || !is_placed(e, v)) continue;
    place(d, v, whole);
    size_t end = d->offsets[v] + padded(d->bytes[v]);
    if (end > need) need = end;
  }
  for (uint32_t a = 0; a < instruction->num_args; a++) {
    uint32_t v = e->plan.values[instruction->args[a]].of;
    if (d->last[v] == i && d->in_use[v]) release(d, v);
  }
  return need;
}

/* Adds memory up to `need` bytes; what the arena holds already stays where it is. */
static int32_t grow(td_dynamic* d, size_t need, td_error* error) {
  size_t have = capacity(d);
  if (need <= have) return TD_OK;
  char* memory = td_alloc(need - have, error);
  if (memory == NULL) return TD_MEMORY;
  d->chunks[d->num_chunks++] = (chunk){memory, need};
  return TD_OK;
}

/* Makes one block of the arena, between runs. */
static int32_t join_chunks(td_dynamic* d, td_error* error) {
  if (d->num_chunks < 2) return TD_OK;
  size_t bytes = capacity(d);
  free_chunks(d);
  return grow(d, bytes, error);
}

static void* address(const td_dynamic* d, size_t offset) {
  uint32_t c = 0;
  while (offset >= d->chunks[c].end) c++;
  return d->chunks[c].memory + (offset - (c == 0 ? 0 : d->chunks[c - 1].end));
}

static void set_addresses(td_executor* e, const td_segment* segment) {
  for (uint32_t i = segment->begin; i < segment->end; i++) {
    const td_instruction* instruction = &e->plan.instructions[i];
    for (uint32_t a = 0; a < instruction->num_args; a++) {
      uint32_t v = e->plan.values[instruction->args[a]].of;
      if (is_placed(e, v)) e->dynamic->pointers[v] = address(e->dynamic, e->dynamic->offsets[v]);
    }
  }
}

static int32_t place_segment(td_executor* e, uint32_t s, td_error* error) {
  const td_segment* segment = &e->plan.segments[s];
  td_dynamic* d = e->dynamic;
  gather_owners(e, segment->begin);
  bool whole = s == 0; /* nothing to keep: one block can take the place of all */
  size_t need = 0;
  for (uint32_t i = segment->begin; i < segment->end; i++) {
    size_t end = place_for(e, i, whole);
    if (end > need) need = end;
  }
  if (whole && need > capacity(d)) free_chunks(d);
  int32_t code = grow(d, need, error);
  if (code == TD_OK) set_addresses(e, segment);
  return code;
}

/* ---- one run --------------------------------------------------------------------------------- */

static int32_t wrong_extent(const td_executor* e, uint32_t i, int32_t axis, int64_t given,
                            int64_t wanted, td_error* error) {
  const td_port* ports = e->plan.inputs;
  td_extent extent = e->plan.values[ports[i].value].extents[axis];
  const td_size* size = extent.size == TD_NUMBER ? NULL : &e->plan.sizes[extent.size];
  if (size == NULL || size->op != TD_SIZE_INPUT)
    return td_fail(error, TD_INPUT, "input \"%.200s\" has %lld elements along axis %d, the model "
                   "expects %lld", ports[i].name, (long long)given, (int)axis, (long long)wanted);
  return td_fail(error, TD_INPUT, "input \"%.200s\" has %lld elements along axis %d, but \"%.60s\" "
                 "is %lld by axis %u of input \"%.200s\"", ports[i].name, (long long)given,
                 (int)axis, size->name, (long long)wanted, (unsigned)size->axis,
                 ports[size->input].name);
}

static int32_t take_shapes(td_executor* e, const td_tensor* inputs, td_error* error) {
  td_dynamic* d = e->dynamic;
  for (uint32_t i = 0; i < e->plan.num_inputs; i++) {
    int32_t ndim = e->plan.values[e->plan.inputs[i].value].ndim;
    if (inputs[i].ndim == ndim && (ndim == 0 || inputs[i].shape != NULL)) continue;
    return td_fail(error, TD_INPUT, "input \"%.200s\" has %d dimensions, the model expects %d",
                   e->plan.inputs[i].name, (int)inputs[i].ndim, (int)ndim);
  }
  for (uint32_t k = 0; k < e->plan.num_sizes; k++) {
    const td_size* size = &e->plan.sizes[k];
    if (size->op == TD_SIZE_INPUT) set_size(d, k, inputs[size->input].shape[size->axis], 0);
    if (size->op == TD_SIZE_GIVEN) set_size(d, k, d->given[size->input], 0);
  }
  return TD_OK;
}

static int32_t check_shapes(td_executor* e, const td_tensor* inputs, td_error* error) {
  for (uint32_t i = 0; i < e->plan.num_inputs; i++) {
    const td_value* value = &e->plan.values[e->plan.inputs[i].value];
    for (int32_t axis = 0; axis < value->ndim; axis++) {
      int64_t given = inputs[i].shape[axis], wanted = extent_of(e->dynamic, value->extents[axis]);
      if (given != wanted || given < 0) return wrong_extent(e, i, axis, given, wanted, error);
    }
  }
  return TD_OK;
}

/* The executor's own buffer of a port, large enough for `bytes`. */
static void* own_buffer(td_binding* p, size_t bytes, td_error* error) {
  if (p->own != NULL && p->own_bytes >= bytes) return p->own;
  td_free(p->own);
  p->own_bytes = bytes;
  p->own = td_alloc(bytes, error);
  return p->own;
}

static int32_t bind_inputs(td_executor* e, const td_tensor* inputs, td_error* error) {
  for (uint32_t i = 0; i < e->plan.num_inputs; i++) {
    uint32_t v = e->plan.inputs[i].value;
    size_t bytes = e->dynamic->bytes[v];
    const void* given = inputs[i].data;
    if (given == NULL && bytes > 0)
      return td_fail(error, TD_INPUT, "input \"%.200s\" is not given", e->plan.inputs[i].name);
    void* pointer = (void*)(uintptr_t)given; /* kernels do not write to inputs */
    if (!td_is_in_place(e, given)) {
      pointer = own_buffer(&e->inputs[i], bytes, error);
      if (pointer == NULL) return TD_MEMORY;
      memcpy(pointer, given, bytes);
    }
    e->dynamic->pointers[v] = pointer;
  }
  return TD_OK;
}

static int32_t check_output(const td_executor* e, const td_tensor* inputs,
                            const td_buffer* outputs, uint32_t o, td_error* error) {
  const td_plan* plan = &e->plan;
  size_t bytes = e->dynamic->bytes[plan->outputs[o].value];
  if (outputs[o].bytes < bytes)
    return td_fail(error, TD_INPUT, "the buffer of output \"%.200s\" has %zu bytes, the result has "
                   "%zu", plan->outputs[o].name, outputs[o].bytes, bytes);
  for (uint32_t i = 0; i < plan->num_inputs; i++)
    if (td_overlap(outputs[o].data, bytes, inputs[i].data,
                   e->dynamic->bytes[plan->inputs[i].value]))
      return td_fail(error, TD_INPUT, "the buffer of output \"%.200s\" overlaps input \"%.200s\"",
                     plan->outputs[o].name, plan->inputs[i].name);
  for (uint32_t i = 0; i < plan->num_outputs; i++)
    if (i != o && td_overlap(outputs[o].data, bytes, outputs[i].data, outputs[i].bytes))
      return td_fail(error, TD_INPUT, "the buffers of outputs \"%.200s\" and \"%.200s\" overlap",
                     plan->outputs[i].name, plan->outputs[o].name);
  return TD_OK;
}

/* Binds the outputs whose first use is in a segment; only from there on their sizes are known. */
static int32_t bind_outputs(td_executor* e, uint32_t s, const td_tensor* inputs,
                            const td_buffer* outputs, td_error* error) {
  const td_segment* segment = &e->plan.segments[s];
  td_dynamic* d = e->dynamic;
  for (uint32_t o = 0; o < e->plan.num_outputs; o++) {
    uint32_t v = e->plan.outputs[o].value;
    if (d->first[v] < segment->begin || d->first[v] >= segment->end) continue;
    void* given = outputs == NULL ? NULL : outputs[o].data;
    int32_t code = given == NULL ? TD_OK : check_output(e, inputs, outputs, o, error);
    if (code != TD_OK) return code;
    bool direct = given != NULL && td_is_aligned(given);
    d->pointers[v] = direct ? given : own_buffer(&e->outputs[o], d->bytes[v], error);
    if (d->pointers[v] == NULL) return TD_MEMORY;
    e->outputs[o].has_result = given == NULL;
  }
  return TD_OK;
}

static void copy_outputs(td_executor* e, const td_buffer* outputs) {
  for (uint32_t o = 0; outputs != NULL && o < e->plan.num_outputs; o++) {
    uint32_t v = e->plan.outputs[o].value;
    if (outputs[o].data != NULL && outputs[o].data != e->dynamic->pointers[v])
      memcpy(outputs[o].data, e->dynamic->pointers[v], e->dynamic->bytes[v]);
  }
}

/* A result is copied from where its branch or loop left it. */
static int32_t bind_result(td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const int64_t* shape = e->dynamic->shapes[instruction->args[0]];
  const void* data;
  int32_t code = td_block_result(e, instruction->source, instruction->index, shape, &data, error);
  e->steps[i].buffers[1] = e->steps[i].buffers[0];
  e->steps[i].buffers[0] = (void*)(uintptr_t)data; /* only read */
  return code;
}

static int32_t bind_steps(td_executor* e, const td_segment* segment, td_error* error) {
  const td_dynamic* d = e->dynamic;
  for (uint32_t i = segment->begin; i < segment->end; i++) {
    const td_instruction* instruction = &e->plan.instructions[i];
    for (uint32_t a = 0; a < instruction->num_args; a++) {
      uint32_t v = instruction->args[a], owner = e->plan.values[v].of;
      e->steps[i].buffers[a] = (char*)d->pointers[owner] + (owner == v ? 0 : d->offsets[v]);
    }
    if (instruction->op != TD_OP_RESULT) continue;
    int32_t code = bind_result(e, i, error);
    if (code != TD_OK) return code;
  }
  return TD_OK;
}

/* Types, sizes and places for the instructions of a segment. */
static int32_t settle_segment(td_executor* e, uint32_t s, td_error* error) {
  const td_segment* segment = &e->plan.segments[s];
  int32_t code = settle_types(e, s, error);
  for (uint32_t i = segment->begin; code == TD_OK && i < segment->end; i++)
    code = settle_step(e, i, error);
  return code == TD_OK ? place_segment(e, s, error) : code;
}

static int32_t enter_segment(td_executor* e, uint32_t s, const td_tensor* inputs,
                             const td_buffer* outputs, td_error* error) {
  td_dynamic* d = e->dynamic;
  int32_t code = compute_sizes(e, s, error);
  if (code == TD_OK && s == 0) code = check_shapes(e, inputs, error);
  if (code == TD_OK) code = check_sizes(e, s, error);
  if (code == TD_OK && d->valid <= s) {
    code = settle_segment(e, s, error);
    d->valid = s + 1;
  }
  if (code == TD_OK && s == 0) code = bind_inputs(e, inputs, error);
  if (code == TD_OK) code = bind_outputs(e, s, inputs, outputs, error);
  return code == TD_OK ? bind_steps(e, &e->plan.segments[s], error) : code;
}

static int32_t run_block(td_executor* e, uint32_t i, td_error* error) {
  int64_t before = e->profiling ? td_now_ns() : 0;
  int32_t code = td_block_run(e, i, error);
  if (e->profiling) {
    e->profile_ns[i] += (uint64_t)(td_now_ns() - before);
    e->profile_runs[i]++;
  }
  return code;
}

static int32_t run_segment(td_executor* e, uint32_t s, td_error* error) {
  const td_segment* segment = &e->plan.segments[s];
  bool reads = s + 1 < e->plan.num_segments;
  int32_t code = td_run_steps(e, segment->begin, segment->end - (reads ? 1 : 0), error);
  if (code != TD_OK || !reads) return code;
  uint32_t last = segment->end - 1;
  return e->plan.instructions[last].op == TD_OP_SIZE ? read_sizes(e, last, error)
                                                     : run_block(e, last, error);
}

int32_t td_dynamic_run(td_executor* e, const td_tensor* inputs, const td_buffer* outputs,
                       td_error* error) {
  int32_t code = join_chunks(e->dynamic, error);
  if (code == TD_OK) code = take_shapes(e, inputs, error);
  for (uint32_t s = 0; code == TD_OK && s < e->plan.num_segments; s++) {
    code = enter_segment(e, s, inputs, outputs, error);
    if (code == TD_OK) code = run_segment(e, s, error);
  }
  if (code == TD_OK) copy_outputs(e, outputs);
  if (code != TD_OK) e->dynamic->valid = 0; /* nothing of a run that failed is used again */
  return code;
}
