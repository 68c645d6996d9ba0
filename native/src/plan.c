/* SPDX-License-Identifier: Apache-2.0 */
/* Execution plans: read from JSON and checked against themselves as a whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define PLAN_VERSION 1

typedef struct {
  td_zone* zone;
  td_plan* plan;
  td_error* error;
  char where[64]; /* the part being read, for messages */
} reader;

/* ---- fields ---------------------------------------------------------------------------------- */

static bool no_memory(reader* r) {
  td_fail(r->error, TD_MEMORY, "not enough memory for the execution plan");
  return false;
}

static bool wrong_field(reader* r, const char* key, const char* wanted, const td_json* found) {
  td_fail(r->error, TD_PLAN, "%s: \"%s\" must be %s but is %s", r->where, key, wanted,
          found == NULL ? "missing" : td_json_type_name(found->type));
  return false;
}

static const td_json* get_list(reader* r, const td_json* object, const char* key) {
  const td_json* list = td_json_get(object, key);
  if (list != NULL && list->type == TD_JSON_ARRAY) return list;
  wrong_field(r, key, "a list", list);
  return NULL;
}

static bool get_text(reader* r, const td_json* object, const char* key, const char** text) {
  const td_json* field = td_json_get(object, key);
  if (field == NULL || field->type != TD_JSON_STRING) return wrong_field(r, key, "a text", field);
  *text = td_zone_text(r->zone, field->text);
  return *text != NULL || no_memory(r);
}

/* Text that may be absent: "" then. */
static bool get_optional_text(reader* r, const td_json* object, const char* key,
                              const char** text) {
  *text = "";
  return td_json_get(object, key) == NULL || get_text(r, object, key, text);
}

static bool get_size(reader* r, const td_json* object, const char* key, size_t* size) {
  const td_json* field = td_json_get(object, key);
  if (field == NULL || field->type != TD_JSON_INTEGER || field->integer < 0 ||
      (uint64_t)field->integer > SIZE_MAX / 4)
    return wrong_field(r, key, "a size in bytes", field);
  *size = (size_t)field->integer;
  return true;
}

/* An integer in [0, limit). */
static bool get_id(reader* r, const td_json* field, const char* key, uint32_t limit, uint32_t* id) {
  if (field == NULL || field->type != TD_JSON_INTEGER)
    return wrong_field(r, key, "an integer", field);
  if (field->integer < 0 || field->integer >= (int64_t)limit) {
    td_fail(r->error, TD_PLAN, "%s: value %lld does not exist; the plan has %u values", r->where,
            (long long)field->integer, (unsigned)limit);
    return false;
  }
  *id = (uint32_t)field->integer;
  return true;
}

/* A list of integers that are not negative. */
static bool get_integers(reader* r, const td_json* object, const char* key, const int64_t** items,
                         uint32_t* count) {
  const td_json* list = get_list(r, object, key);
  if (list == NULL) return false;
  int64_t* numbers = td_zone_alloc(r->zone, list->count, sizeof *numbers);
  if (numbers == NULL) return no_memory(r);
  *items = numbers;
  *count = list->count;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    if (item->type != TD_JSON_INTEGER || item->integer < 0)
      return wrong_field(r, key, "a list of integers from 0", item);
    *numbers++ = item->integer;
  }
  return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool get_kind(reader* r, const td_json* object, td_value_kind* kind) {
  static const char* const NAMES[] = {"input", "output", "constant", "arena", "workspace"};
  const char* text;
  if (!get_text(r, object, "kind", &text)) return false;
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    if (strcmp(text, NAMES[i]) != 0) continue;
    *kind = (td_value_kind)i;
    return true;
  }
  td_fail(r->error, TD_PLAN, "%s: \"%.60s\" is not a kind of value", r->where, text);
  return false;
}

static bool get_tensor_type(reader* r, const td_json* object, td_value* value) {
  const char* dtype;
  uint32_t ndim;
  if (!get_text(r, object, "dtype", &dtype)) return false;
  value->dtype = td_dtype_by_name(dtype);
  if (value->dtype == NULL) {
    td_fail(r->error, TD_PLAN, "%s: \"%.60s\" is not an element type", r->where, dtype);
    return false;
  }
  if (!get_integers(r, object, "shape", &value->shape, &ndim)) return false;
  if (ndim > TD_MAX_NDIM) {
    td_fail(r->error, TD_PLAN, "%s: the shape has %u dimensions; %d are possible", r->where,
            (unsigned)ndim, TD_MAX_NDIM);
    return false;
  }
  value->ndim = (int32_t)ndim;
  return true;
}

static bool check_bytes(reader* r, const td_value* value) {
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

static bool check_place(reader* r, const td_value* value) {
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

static bool read_value(reader* r, const td_json* object, td_value* value) {
  if (!get_kind(r, object, &value->kind) || !get_tensor_type(r, object, value) ||
      !get_size(r, object, "bytes", &value->bytes) || !check_bytes(r, value))
    return false;
  if (value->kind == TD_VALUE_CONSTANT) return get_text(r, object, "param", &value->param);
  if (value->kind != TD_VALUE_ARENA && value->kind != TD_VALUE_WORKSPACE) return true;
  return get_size(r, object, "offset", &value->offset) && check_place(r, value);
}

static bool read_values(reader* r, const td_json* root) {
  const td_json* list = get_list(r, root, "values");
  if (list == NULL) return false;
  td_value* values = td_zone_alloc(r->zone, list->count, sizeof *values);
  if (values == NULL) return no_memory(r);
  r->plan->values = values;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan value %u", (unsigned)r->plan->num_values);
    if (!read_value(r, item, &values[r->plan->num_values++])) return false;
  }
  return true;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* Names are unique, and every value of `kind` is bound exactly once. */
static bool check_ports(reader* r, const char* what, const td_port* ports, uint32_t count,
                        td_value_kind kind) {
  td_name* names = td_zone_alloc(r->zone, count, sizeof *names);
  bool* bound = td_zone_alloc(r->zone, r->plan->num_values, sizeof *bound);
  if (names == NULL || bound == NULL) return no_memory(r);
  for (uint32_t i = 0; i < count; i++) {
    names[i].name = ports[i].name;
    if (bound[ports[i].value]) {
      td_fail(r->error, TD_PLAN, "plan %s \"%.100s\": value %u is bound twice", what,
              ports[i].name, (unsigned)ports[i].value);
      return false;
    }
    bound[ports[i].value] = true;
  }
  td_names_sort(names, count);
  const char* twice = td_names_duplicate(names, count);
  if (twice != NULL) {
    td_fail(r->error, TD_PLAN, "plan %s \"%.100s\" occurs twice", what, twice);
    return false;
  }
  for (uint32_t v = 0; v < r->plan->num_values; v++) {
    if (r->plan->values[v].kind != kind || bound[v]) continue;
    td_fail(r->error, TD_PLAN, "plan value %u is of kind %s but is none of the plan's %ss",
            (unsigned)v, what, what);
    return false;
  }
  return true;
}

static bool read_ports(reader* r, const td_json* root, const char* what, td_value_kind kind,
                       td_port** ports, uint32_t* count) {
  char key[16];
  snprintf(key, sizeof key, "%ss", what);
  snprintf(r->where, sizeof r->where, "the plan");
  const td_json* list = get_list(r, root, key);
  if (list == NULL) return false;
  td_port* port = td_zone_alloc(r->zone, list->count, sizeof *port);
  if (port == NULL) return no_memory(r);
  *ports = port;
  for (const td_json* item = list->child; item != NULL; item = item->next, port++) {
    snprintf(r->where, sizeof r->where, "plan %s %u", what, (unsigned)(*count)++);
    if (!get_text(r, item, "name", &port->name) ||
        !get_id(r, td_json_get(item, "value"), "value", r->plan->num_values, &port->value))
      return false;
    if (r->plan->values[port->value].kind == kind) continue;
    td_fail(r->error, TD_PLAN, "%s: value %u is not of kind %s", r->where, (unsigned)port->value,
            what);
    return false;
  }
  return check_ports(r, what, *ports, *count, kind);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static bool is_writable(const td_value* value) {
  return value->kind != TD_VALUE_INPUT && value->kind != TD_VALUE_CONSTANT;
}

static bool read_copy(reader* r, const td_json* object, td_instruction* instruction) {
  uint32_t* args = td_zone_alloc(r->zone, 2, sizeof *args);
  if (args == NULL) return no_memory(r);
  uint32_t limit = r->plan->num_values;
  if (!get_id(r, td_json_get(object, "from"), "from", limit, &args[0]) ||
      !get_id(r, td_json_get(object, "to"), "to", limit, &args[1]))
    return false;
  instruction->args = args;
  instruction->num_args = 2;
  const td_value *from = &r->plan->values[args[0]], *to = &r->plan->values[args[1]];
  if (from->bytes != to->bytes || from->dtype != to->dtype) {
    td_fail(r->error, TD_PLAN, "%s: a copy from value %u (%s, %zu bytes) to value %u (%s, %zu "
            "bytes) is not possible", r->where, (unsigned)args[0], from->dtype->name, from->bytes,
            (unsigned)args[1], to->dtype->name, to->bytes);
    return false;
  }
  if (is_writable(to)) return true;
  td_fail(r->error, TD_PLAN, "%s: value %u is an input or constant and cannot be written", r->where,
          (unsigned)args[1]);
  return false;
}

static bool read_args(reader* r, const td_json* object, td_instruction* instruction) {
  const td_json* list = get_list(r, object, "args");
  if (list == NULL) return false;
  uint32_t* args = td_zone_alloc(r->zone, list->count, sizeof *args);
  if (args == NULL) return no_memory(r);
  instruction->args = args;
  bool writes = false;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    uint32_t* arg = &args[instruction->num_args++];
    if (!get_id(r, item, "args", r->plan->num_values, arg)) return false;
    td_value_kind kind = r->plan->values[*arg].kind;
    writes |= kind == TD_VALUE_ARENA || kind == TD_VALUE_OUTPUT;
  }
  if (writes) return true;
  td_fail(r->error, TD_PLAN, "%s: the call has no argument it could write its result to", r->where);
  return false;
}

static bool read_call(reader* r, const td_json* object, td_instruction* instruction) {
  const char* kernel;
  if (!get_text(r, object, "kernel", &kernel) || !read_args(r, object, instruction)) return false;
  if (!get_integers(r, object, "dims", &instruction->dims, &instruction->num_dims)) return false;
  r->plan->kernels[r->plan->num_instructions] = kernel; /* numbered later */
  return true;
}

static bool read_instruction(reader* r, const td_json* object, td_instruction* instruction) {
  const char* op;
  if (!get_text(r, object, "op", &op) ||
      !get_optional_text(r, object, "origin", &instruction->origin))
    return false;
  if (strcmp(op, "call") == 0) return read_call(r, object, instruction);
  instruction->op = TD_OP_COPY;
  if (strcmp(op, "copy") == 0) return read_copy(r, object, instruction);
  td_fail(r->error, TD_UNSUPPORTED, "%s: this runtime (%s) does not know the operation \"%.60s\"",
          r->where, td_version(), op);
  td_hint(r->error, TD_UNSUPPORTED, "the plan was made by a newer Treadle: update the runtime");
  return false;
}

/* Calls of one kernel agree: as many arguments and sizes, and without sizes the same bytes. */
static bool check_same_call(reader* r, const td_instruction* first, const td_instruction* other) {
  const td_value* values = r->plan->values;
  bool same = first->num_args == other->num_args && first->num_dims == other->num_dims;
  for (uint32_t i = 0; same && first->num_dims == 0 && i < first->num_args; i++)
    same = values[first->args[i]].bytes == values[other->args[i]].bytes;
  if (same) return true;
  td_fail(r->error, TD_PLAN, "%s: the arguments differ in number or size from another call of the "
          "same kernel", r->where);
  return false;
}

/* Gives every kernel name a number and compares the calls of each. */
static bool number_kernels(reader* r) {
  td_plan* plan = r->plan;
  const char** names = plan->kernels;
  td_name* sorted = td_zone_alloc(r->zone, plan->num_instructions, sizeof *sorted);
  uint32_t* first = td_zone_alloc(r->zone, plan->num_instructions, sizeof *first);
  if (sorted == NULL || first == NULL) return no_memory(r);
  size_t calls = 0;
  for (uint32_t i = 0; i < plan->num_instructions; i++)
    if (plan->instructions[i].op == TD_OP_CALL) sorted[calls++] = (td_name){names[i], i};
  td_names_sort(sorted, calls);
  for (size_t i = 0; i < calls; i++) {
    td_instruction* call = &plan->instructions[sorted[i].position];
    if (i == 0 || strcmp(sorted[i].name, sorted[i - 1].name) != 0)
      first[plan->num_kernels++] = (uint32_t)sorted[i].position;
    call->kernel = plan->num_kernels - 1;
    snprintf(r->where, sizeof r->where, "plan instruction %zu", sorted[i].position);
    if (!check_same_call(r, &plan->instructions[first[call->kernel]], call)) return false;
  }
  const char** kernels = td_zone_alloc(r->zone, plan->num_kernels, sizeof *kernels);
  if (kernels == NULL) return no_memory(r);
  for (uint32_t k = 0; k < plan->num_kernels; k++) kernels[k] = names[first[k]];
  plan->kernels = kernels;
  return true;
}

static bool read_instructions(reader* r, const td_json* root) {
  snprintf(r->where, sizeof r->where, "the plan");
  const td_json* list = get_list(r, root, "instructions");
  if (list == NULL) return false;
  td_plan* plan = r->plan;
  plan->instructions = td_zone_alloc(r->zone, list->count, sizeof *plan->instructions);
  plan->kernels = td_zone_alloc(r->zone, list->count, sizeof *plan->kernels);
  if (plan->instructions == NULL || plan->kernels == NULL) return no_memory(r);
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan instruction %u", (unsigned)plan->num_instructions);
    if (!read_instruction(r, item, &plan->instructions[plan->num_instructions])) return false;
    plan->num_instructions++;
  }
  return number_kernels(r);
}

/* Every output is the last argument of a copy or some argument of a call. */
static bool check_outputs_written(reader* r) {
  const td_plan* plan = r->plan;
  bool* used = td_zone_alloc(r->zone, plan->num_values, sizeof *used);
  if (used == NULL) return no_memory(r);
  for (uint32_t i = 0; i < plan->num_instructions; i++) {
    const td_instruction* instruction = &plan->instructions[i];
    for (uint32_t a = instruction->op == TD_OP_COPY; a < instruction->num_args; a++)
      used[instruction->args[a]] = true;
  }
  for (uint32_t i = 0; i < plan->num_outputs; i++) {
    if (used[plan->outputs[i].value]) continue;
    td_fail(r->error, TD_PLAN, "plan output \"%.100s\" is written by no instruction",
            plan->outputs[i].name);
    return false;
  }
  return true;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static bool read_features(reader* r, const td_json* root) {
  const td_json* list = td_json_get(root, "cpu_features");
  if (list == NULL) return true;
  if (list->type != TD_JSON_ARRAY) return wrong_field(r, "cpu_features", "a list", list);
  const char** features = td_zone_alloc(r->zone, list->count, sizeof *features);
  if (features == NULL) return no_memory(r);
  r->plan->features = features;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    if (item->type != TD_JSON_STRING)
      return wrong_field(r, "cpu_features", "a list of texts", item);
    const char* feature = td_zone_text(r->zone, item->text);
    if (feature == NULL) return no_memory(r);
    features[r->plan->num_features++] = feature;
  }
  return true;
}

static bool check_version(reader* r, const td_json* root) {
  const td_json* version = td_json_get(root, "version");
  if (version == NULL || version->type != TD_JSON_INTEGER)
    return wrong_field(r, "version", "an integer", version);
  if (version->integer == PLAN_VERSION) return true;
  td_fail(r->error, TD_UNSUPPORTED, "the plan has format version %lld; this runtime (%s) reads "
          "version %d", (long long)version->integer, td_version(), PLAN_VERSION);
  td_hint(r->error, TD_UNSUPPORTED, "compile the model again, or use the runtime it was made for");
  return false;
}

static bool read_plan(reader* r, const td_json* root) {
  td_plan* plan = r->plan;
  if (root == NULL || root->type != TD_JSON_OBJECT) {
    td_fail(r->error, TD_PLAN, "the plan is not a JSON object");
    return false;
  }
  return check_version(r, root) && get_optional_text(r, root, "target", &plan->target) &&
         read_features(r, root) && get_size(r, root, "arena_bytes", &plan->arena_bytes) &&
         read_values(r, root) &&
         read_ports(r, root, "input", TD_VALUE_INPUT, &plan->inputs, &plan->num_inputs) &&
         read_ports(r, root, "output", TD_VALUE_OUTPUT, &plan->outputs, &plan->num_outputs) &&
         read_instructions(r, root) && check_outputs_written(r);
}

int32_t td_plan_read(const td_json* root, td_zone* zone, td_plan* plan, td_error* error) {
  td_error local;
  reader r = {zone, plan, error == NULL ? &local : error, "the plan"};
  memset(plan, 0, sizeof *plan);
  return read_plan(&r, root) ? TD_OK : r.error->code;
}
