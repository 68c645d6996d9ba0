/* SPDX-License-Identifier: Apache-2.0 */
/* Execution plans: read from JSON and checked against themselves as a whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

#define STATIC_VERSION 1  /* all sizes are numbers */
#define DYNAMIC_VERSION 2 /* sizes and places are settled by every run */

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* Names are unique, and every value of `kind` is bound exactly once. */
static bool check_ports(td_reader* r, const char* what, const td_port* ports, uint32_t count,
                        td_value_kind kind) {
  td_name* names = td_zone_alloc(r->zone, count, sizeof *names);
  bool* bound = td_zone_alloc(r->zone, r->plan->num_values, sizeof *bound);
  if (names == NULL || bound == NULL) return td_read_no_memory(r);
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

static bool read_ports(td_reader* r, const td_json* root, const char* what, td_value_kind kind,
                       td_port** ports, uint32_t* count) {
  char key[16];
  snprintf(key, sizeof key, "%ss", what);
  snprintf(r->where, sizeof r->where, "the plan");
  const td_json* list = td_read_list(r, root, key);
  if (list == NULL) return false;
  td_port* port = td_zone_alloc(r->zone, list->count, sizeof *port);
  if (port == NULL) return td_read_no_memory(r);
  *ports = port;
  for (const td_json* item = list->child; item != NULL; item = item->next, port++) {
    snprintf(r->where, sizeof r->where, "plan %s %u", what, (unsigned)(*count)++);
    if (!td_read_text(r, item, "name", &port->name) ||
        !td_read_id(r, td_json_get(item, "value"), "value", r->plan->num_values, &port->value))
      return false;
    if (r->plan->values[port->value].kind == kind) continue;
    td_fail(r->error, TD_PLAN, "%s: value %u is not of kind %s", r->where, (unsigned)port->value,
            what);
    return false;
  }
  return check_ports(r, what, *ports, *count, kind);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static td_value_kind kind_of_memory(const td_plan* plan, uint32_t v) {
  return plan->values[plan->values[v].of].kind;
}

bool td_is_writable(const td_plan* plan, uint32_t v) {
  td_value_kind kind = kind_of_memory(plan, v);
  return kind != TD_VALUE_INPUT && kind != TD_VALUE_CONSTANT;
}

static bool read_copy(td_reader* r, const td_json* object, td_instruction* instruction) {
  uint32_t* args = td_zone_alloc(r->zone, 2, sizeof *args);
  if (args == NULL) return td_read_no_memory(r);
  uint32_t limit = r->plan->num_values;
  if (!td_read_id(r, td_json_get(object, "from"), "from", limit, &args[0]) ||
      !td_read_id(r, td_json_get(object, "to"), "to", limit, &args[1]))
    return false;
  instruction->args = args;
  instruction->num_args = 2;
  const td_value *from = &r->plan->values[args[0]], *to = &r->plan->values[args[1]];
  bool same_bytes = r->plan->is_dynamic || from->bytes == to->bytes; /* else the run compares */
  if (!same_bytes || from->dtype != to->dtype) {
    td_fail(r->error, TD_PLAN, "%s: a copy from value %u (%s, %zu bytes) to value %u (%s, %zu "
            "bytes) is not possible", r->where, (unsigned)args[0], from->dtype->name, from->bytes,
            (unsigned)args[1], to->dtype->name, to->bytes);
    return false;
  }
  if (td_is_writable(r->plan, args[1])) return true;
  td_fail(r->error, TD_PLAN, "%s: value %u is an input or constant and cannot be written", r->where,
          (unsigned)args[1]);
  return false;
}

bool td_read_args(td_reader* r, const td_json* object, td_instruction* instruction) {
  const td_json* list = td_read_list(r, object, "args");
  if (list == NULL) return false;
  uint32_t* args = td_zone_alloc(r->zone, list->count, sizeof *args);
  if (args == NULL) return td_read_no_memory(r);
  instruction->args = args;
  for (const td_json* item = list->child; item != NULL; item = item->next)
    if (!td_read_id(r, item, "args", r->plan->num_values, &args[instruction->num_args++]))
      return false;
  return true;
}

static bool check_writes(td_reader* r, const td_instruction* call) {
  bool writes = false;
  for (uint32_t a = 0; a < call->num_args; a++) {
    td_value_kind kind = kind_of_memory(r->plan, call->args[a]);
    writes |= kind == TD_VALUE_ARENA || kind == TD_VALUE_OUTPUT;
  }
  if (writes) return true;
  td_fail(r->error, TD_PLAN, "%s: the call has no argument it could write its result to", r->where);
  return false;
}

bool td_read_dims(td_reader* r, const td_json* object, td_instruction* instruction) {
  uint32_t* count = &instruction->num_dims;
  if (r->plan->is_dynamic)
    return td_read_extents(r, object, "dims", &instruction->extents, count);
  return td_read_integers(r, object, "dims", &instruction->dims, count);
}

static bool read_call(td_reader* r, const td_json* object, td_instruction* instruction) {
  const char* kernel;
  if (!td_read_text(r, object, "kernel", &kernel) || 
      !td_read_args(r, object, instruction) || !check_writes(r, instruction))
    return false;
  if (!td_read_dims(r, object, instruction)) return false;
  r->plan->kernels[r->plan->num_instructions] = kernel; /* numbered later */
  return true;
}

/* Sizes read from the first elements of an int64 value. */
static bool read_size(td_reader* r, const td_json* object, td_instruction* instruction) {
  const td_json* list = td_read_list(r, object, "sizes");
  if (list == NULL) return false;
  uint32_t* from = td_zone_alloc(r->zone, 1, sizeof *from);
  uint32_t* sizes = td_zone_alloc(r->zone, list->count, sizeof *sizes);
  if (from == NULL || sizes == NULL) return td_read_no_memory(r);
  if (!td_read_id(r, td_json_get(object, "from"), "from", r->plan->num_values, from)) return false;
  instruction->args = from;
  instruction->num_args = 1;
  instruction->sizes = sizes;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    uint32_t* size = &sizes[instruction->num_dims++];
    if (!td_read_number_of(r, item, "sizes", "size", r->plan->num_sizes, size)) return false;
    if (r->plan->sizes[*size].op == TD_SIZE_DATA) continue;
    td_fail(r->error, TD_PLAN, "%s: size %u is not one that is read from data", r->where,
            (unsigned)*size);
    return false;
  }
  const td_value* value = &r->plan->values[*from];
  if (strcmp(value->dtype->name, "int64") == 0 &&
      value->bytes / sizeof(int64_t) >= instruction->num_dims)
    return true;
  td_fail(r->error, TD_PLAN, "%s: value %u does not hold %u int64 numbers", r->where,
          (unsigned)*from, (unsigned)instruction->num_dims);
  return false;
}

static bool read_instruction(td_reader* r, const td_json* object, td_instruction* instruction) {
  const char* op;
  if (!td_read_text(r, object, "op", &op) ||
      !td_read_optional_text(r, object, "origin", &instruction->origin))
    return false;
  if (strcmp(op, "call") == 0) return read_call(r, object, instruction);
  instruction->op = TD_OP_COPY;
  if (strcmp(op, "copy") == 0) return read_copy(r, object, instruction);
  instruction->op = TD_OP_CHECK;
  if (strcmp(op, "check") == 0) return td_read_indices(r, object, instruction);
  instruction->op = TD_OP_RANDOM;
  if (strcmp(op, "random") == 0) return td_read_random(r, object, instruction);
  instruction->op = TD_OP_SIZE;
  if (strcmp(op, "size") == 0 && r->plan->is_dynamic) return read_size(r, object, instruction);
  instruction->op = strcmp(op, "loop") == 0 ? TD_OP_LOOP : TD_OP_IF;
  if ((strcmp(op, "if") == 0 || instruction->op == TD_OP_LOOP) && r->plan->is_dynamic)
    return td_read_block(r, object, instruction);
  instruction->op = TD_OP_RESULT;
  if (strcmp(op, "result") == 0 && r->plan->is_dynamic)
    return td_read_result(r, object, instruction);
  td_fail(r->error, TD_UNSUPPORTED, "%s: this runtime (%s) does not know the operation \"%.60s\"",
          r->where, td_version(), op);
  td_hint(r->error, TD_UNSUPPORTED, "the plan was made by a newer Treadle: update the runtime");
  return false;
}

/* Calls of one kernel agree: as many arguments and sizes, and without sizes the same bytes. */
static bool check_same_call(td_reader* r, const td_instruction* first, const td_instruction* other) {
  const td_value* values = r->plan->values;
  bool same = first->num_args == other->num_args && first->num_dims == other->num_dims;
  bool is_fixed = first->num_dims == 0 && !r->plan->is_dynamic;
  for (uint32_t i = 0; same && is_fixed && i < first->num_args; i++)
    same = values[first->args[i]].bytes == values[other->args[i]].bytes;
  if (same) return true;
  td_fail(r->error, TD_PLAN, "%s: the arguments differ in number or size from another call of the "
          "same kernel", r->where);
  return false;
}

/* Gives every kernel name a number and compares the calls of each. */
static bool number_kernels(td_reader* r) {
  td_plan* plan = r->plan;
  const char** names = plan->kernels;
  td_name* sorted = td_zone_alloc(r->zone, plan->num_instructions, sizeof *sorted);
  uint32_t* first = td_zone_alloc(r->zone, plan->num_instructions, sizeof *first);
  if (sorted == NULL || first == NULL) return td_read_no_memory(r);
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
  if (kernels == NULL) return td_read_no_memory(r);
  for (uint32_t k = 0; k < plan->num_kernels; k++) kernels[k] = names[first[k]];
  plan->kernels = kernels;
  return true;
}

static bool read_instructions(td_reader* r, const td_json* root) {
  snprintf(r->where, sizeof r->where, "the plan");
  const td_json* list = td_read_list(r, root, "instructions");
  if (list == NULL) return false;
  td_plan* plan = r->plan;
  plan->instructions = td_zone_alloc(r->zone, list->count, sizeof *plan->instructions);
  plan->kernels = td_zone_alloc(r->zone, list->count, sizeof *plan->kernels);
  if (plan->instructions == NULL || plan->kernels == NULL) return td_read_no_memory(r);
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan instruction %u", (unsigned)plan->num_instructions);
    if (!read_instruction(r, item, &plan->instructions[plan->num_instructions])) return false;
    plan->num_instructions++;
  }
  return number_kernels(r);
}

/* Every output is the last argument of a copy or some argument of a call. */
static bool check_outputs_written(td_reader* r) {
  const td_plan* plan = r->plan;
  bool* used = td_zone_alloc(r->zone, plan->num_values, sizeof *used);
  if (used == NULL) return td_read_no_memory(r);
  for (uint32_t i = 0; i < plan->num_instructions; i++) {
    const td_instruction* instruction = &plan->instructions[i];
    for (uint32_t a = instruction->op == TD_OP_COPY; a < instruction->num_args; a++)
      used[plan->values[instruction->args[a]].of] |=
          instruction->op != TD_OP_CHECK && !td_ends_segment(instruction->op);
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

static bool read_features(td_reader* r, const td_json* root) {
  const td_json* list = td_json_get(root, "cpu_features");
  if (list == NULL) return true;
  if (list->type != TD_JSON_ARRAY) return td_read_wrong(r, "cpu_features", "a list", list);
  const char** features = td_zone_alloc(r->zone, list->count, sizeof *features);
  if (features == NULL) return td_read_no_memory(r);
  r->plan->features = features;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    if (item->type != TD_JSON_STRING)
      return td_read_wrong(r, "cpu_features", "a list of texts", item);
    const char* feature = td_zone_text(r->zone, item->text);
    if (feature == NULL) return td_read_no_memory(r);
    features[r->plan->num_features++] = feature;
  }
  return true;
}

static bool check_version(td_reader* r, const td_json* root) {
  const td_json* version = td_json_get(root, "version");
  if (version == NULL || version->type != TD_JSON_INTEGER)
    return td_read_wrong(r, "version", "an integer", version);
  r->plan->is_dynamic = version->integer == DYNAMIC_VERSION;
  if (r->plan->is_dynamic || version->integer == STATIC_VERSION) return true;
  td_fail(r->error, TD_UNSUPPORTED, "the plan has format version %lld; this runtime (%s) reads "
          "versions %d to %d", (long long)version->integer, td_version(), STATIC_VERSION,
          DYNAMIC_VERSION);
  td_hint(r->error, TD_UNSUPPORTED, "compile the model again, or use the runtime it was made for");
  return false;
}

/* What the memory of a run depends on: its size, or the sizes that each run decides. */
static bool read_memory(td_reader* r, const td_json* root) {
  if (r->plan->is_dynamic) return td_read_sizes(r, root) && td_read_checks(r, root);
  return td_read_size(r, root, "arena_bytes", &r->plan->arena_bytes);
}

/* Where the inputs of the model must begin for kernels to read them in place. */
static bool read_input_alignment(td_reader* r, const td_json* root) {
  size_t* alignment = &r->plan->input_alignment;
  *alignment = TD_ALIGNMENT;
  if (td_json_get(root, "input_alignment") == NULL) return true;
  if (!td_read_size(r, root, "input_alignment", alignment)) return false;
  if (*alignment > 0 && TD_ALIGNMENT % *alignment == 0) return true;
  td_fail(r->error, TD_PLAN, "%s: input_alignment is %zu, not a power of two up to %zu", r->where,
          *alignment, TD_ALIGNMENT);
  return false;
}

/* What kernels take of the stack. */
static bool read_stack(td_reader* r, const td_json* root) {
  r->plan->stack_bytes = 0;
  return td_json_get(root, "stack_bytes") == NULL ||
         td_read_size(r, root, "stack_bytes", &r->plan->stack_bytes);
}

bool td_read_body(td_reader* r, const td_json* root) {
  td_plan* plan = r->plan;
  if (root == NULL || root->type != TD_JSON_OBJECT) {
    td_fail(r->error, TD_PLAN, "the plan is not a JSON object");
    return false;
  }
  return check_version(r, root) && td_read_optional_text(r, root, "target", &plan->target) &&
         td_read_optional_text(r, root, "triple", &plan->triple) &&
         read_features(r, root) && read_input_alignment(r, root) && read_stack(r, root) &&
         read_memory(r, root) &&
         td_read_plans(r, root) && td_read_values(r, root) &&
         read_ports(r, root, "input", TD_VALUE_INPUT, &plan->inputs, &plan->num_inputs) &&
         read_ports(r, root, "output", TD_VALUE_OUTPUT, &plan->outputs, &plan->num_outputs) &&
         read_instructions(r, root) && check_outputs_written(r) &&
         (!plan->is_dynamic || td_check_sizes(r));
}

int32_t td_plan_read(const td_json* root, td_zone* zone, td_plan* plan, td_error* error) {
  td_error local;
  td_reader r = {zone, plan, error == NULL ? &local : error, "the plan"};
  memset(plan, 0, sizeof *plan);
  return td_read_body(&r, root) ? TD_OK : r.error->code;
}
