/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a dynamic plan: where each comes from, and from when on it is known. */
#include <stdio.h>
#include <string.h>

#include "reader.h"

bool td_read_extent(td_reader* r, const td_json* field, const char* key, bool negative,
                    td_extent* extent) {
  *extent = (td_extent){0, TD_NUMBER};
  if (field != NULL && field->type == TD_JSON_INTEGER && (negative || field->integer >= 0)) {
    extent->number = field->integer;
    return true;
  }
  if (field != NULL && field->type == TD_JSON_OBJECT)
    return td_read_number_of(r, td_json_get(field, "size"), "size", "size", r->plan->num_sizes,
                             &extent->size);
  return td_read_wrong(r, key, negative ? "an integer or a size" : "an integer from 0 or a size",
                       field);
}

bool td_read_extents(td_reader* r, const td_json* object, const char* key,
                     const td_extent** extents, uint32_t* count) {
  const td_json* list = td_read_list(r, object, key);
  if (list == NULL) return false;
  td_extent* items = td_zone_alloc(r->zone, list->count, sizeof *items);
  if (items == NULL) return td_read_no_memory(r);
  *extents = items;
  *count = list->count;
  for (const td_json* item = list->child; item != NULL; item = item->next)
    if (!td_read_extent(r, item, key, false, items++)) return false;
  return true;
}

static bool read_input_size(td_reader* r, const td_json* object, td_size* size) {
  size->op = TD_SIZE_INPUT; /* whether there is such an axis is checked when inputs are known */
  return td_read_number_of(r, td_json_get(object, "input"), "input", "input", UINT32_MAX,
                           &size->input) &&
         td_read_number_of(r, td_json_get(object, "axis"), "axis", "axis", TD_MAX_NDIM,
                           &size->axis);
}

/* A size of the plan that this one is a body of; they are given in this order. */
static bool read_given_size(td_reader* r, const td_json* object) {
  const td_json* field = td_json_get(object, "given");
  if (field->type == TD_JSON_INTEGER && field->integer == (int64_t)r->plan->num_given &&
      r->plan->depth > 0) {
    r->plan->num_given++;
    return true;
  }
  td_fail(r->error, TD_PLAN, "%s: \"given\" numbers the sizes that a body is given, from 0",
          r->where);
  return false;
}

static bool get_op(td_reader* r, const td_json* object, td_size* size) {
  static const char* const NAMES[] = {"add", "sub", "mul", "floordiv", "floormod", "min", "max",
                                      "broadcast"};
  const char* text;
  if (!td_read_text(r, object, "op", &text)) return false;
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    if (strcmp(text, NAMES[i]) != 0) continue;
    size->op = (td_size_op)(TD_SIZE_ADD + i);
    return true;
  }
  td_fail(r->error, TD_PLAN, "%s: \"%.60s\" is not an operation on sizes", r->where, text);
  return false;
}

static bool read_size(td_reader* r, const td_json* object, td_size* size) {
  if (!td_read_optional_text(r, object, "name", &size->name)) return false;
  if (td_json_get(object, "input") != NULL) return read_input_size(r, object, size);
  size->op = TD_SIZE_GIVEN;
  size->input = r->plan->num_given;
  if (td_json_get(object, "given") != NULL) return read_given_size(r, object);
  size->op = TD_SIZE_DATA;
  if (td_json_get(object, "op") == NULL) return true;
  return get_op(r, object, size) &&
         td_read_extent(r, td_json_get(object, "a"), "a", true, &size->a) &&
         td_read_extent(r, td_json_get(object, "b"), "b", true, &size->b);
}

bool td_read_sizes(td_reader* r, const td_json* root) {
  const td_json* list = td_read_list(r, root, "sizes");
  if (list == NULL) return false;
  td_size* sizes = td_zone_alloc(r->zone, list->count, sizeof *sizes);
  if (sizes == NULL) return td_read_no_memory(r);
  r->plan->sizes = sizes;
  /* num_sizes grows as they are read: a size can only refer to those before it. */
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan size %u", (unsigned)r->plan->num_sizes);
    if (!read_size(r, item, &sizes[r->plan->num_sizes])) return false;
    r->plan->num_sizes++;
  }
  return true;
}

/* The rule of a check, "equal" where it names none, and the axis it is about. */
static bool read_rule(td_reader* r, const td_json* item, td_size_check* check) {
  static const char* const rules[] = {"equal", "within", "filled", "kept", "never", "asked"};
  const char* name;
  check->rule = TD_RULE_EQUAL;
  if (td_json_get(item, "rule") == NULL) return true;
  if (!td_read_optional_text(r, item, "rule", &name)) return false;
  for (uint32_t k = 0; k < sizeof rules / sizeof *rules; k++)
    if (strcmp(name, rules[k]) == 0) {
      check->rule = (td_rule)k;
      return k == TD_RULE_EQUAL || td_read_size(r, item, "axis", &check->axis);
    }
  return td_read_wrong(r, "rule", "equal, within, filled, kept, never or asked",
                       td_json_get(item, "rule"));
}

/* What every run must find of its sizes; the list may be absent. */
bool td_read_checks(td_reader* r, const td_json* root) {
  if (td_json_get(root, "checks") == NULL) return true;
  const td_json* list = td_read_list(r, root, "checks");
  if (list == NULL) return false;
  td_plan* plan = r->plan;
  plan->checks = td_zone_alloc(r->zone, list->count, sizeof *plan->checks);
  if (plan->checks == NULL) return td_read_no_memory(r);
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    snprintf(r->where, sizeof r->where, "plan check %u", (unsigned)plan->num_checks);
    td_size_check* check = &plan->checks[plan->num_checks++];
    if (!td_read_extent(r, td_json_get(item, "a"), "a", false, &check->a) ||
        !td_read_extent(r, td_json_get(item, "b"), "b", false, &check->b) ||
        !td_read_optional_text(r, item, "origin", &check->origin) || !read_rule(r, item, check))
      return false;
  }
  return true;
}

/* ---- when sizes are known -------------------------------------------------------------------- */

static bool check_input_size(td_reader* r, const td_size* size) {
  const td_plan* plan = r->plan;
  if (size->input >= plan->num_inputs ||
      (int32_t)size->axis >= plan->values[plan->inputs[size->input].value].ndim) {
    td_fail(r->error, TD_PLAN, "%s: input %u has no axis %u", r->where, (unsigned)size->input,
            (unsigned)size->axis);
    return false;
  }
  return true;
}

/* Makes the segments; tells every size read from data the segment that may use it. */
static bool make_segments(td_reader* r) {
  td_plan* plan = r->plan;
  bool* given = td_zone_alloc(r->zone, plan->num_sizes, sizeof *given);
  plan->segments = td_zone_alloc(r->zone, (size_t)plan->num_instructions + 1,
                                 sizeof *plan->segments);
  if (given == NULL || plan->segments == NULL) return td_read_no_memory(r);
  uint32_t begin = 0;
  for (uint32_t i = 0; i < plan->num_instructions; i++) {
    const td_instruction* instruction = &plan->instructions[i];
    if (!td_ends_segment(instruction->op)) continue;
    plan->segments[plan->num_segments++] = (td_segment){begin, i + 1};
    begin = i + 1;
    for (uint32_t k = 0; k < instruction->num_dims; k++) {
      uint32_t s = instruction->sizes[k];
      plan->sizes[s].segment = plan->num_segments;
      if (given[s]) {
        td_fail(r->error, TD_PLAN, "plan instruction %u: size %u is read twice", (unsigned)i,
                (unsigned)s);
        return false;
      }
      given[s] = true;
    }
  }
  plan->segments[plan->num_segments++] = (td_segment){begin, plan->num_instructions};
  for (uint32_t k = 0; k < plan->num_sizes; k++) {
    if (plan->sizes[k].op != TD_SIZE_DATA || given[k]) continue;
    td_fail(r->error, TD_PLAN, "plan size %u (%.60s) comes from nowhere", (unsigned)k,
            plan->sizes[k].name);
    return false;
  }
  return true;
}

static uint32_t segment_of(const td_plan* plan, td_extent extent) {
  return extent.size == TD_NUMBER ? 0 : plan->sizes[extent.size].segment;
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

static bool settle_sizes(td_reader* r) {
  td_plan* plan = r->plan;
  for (uint32_t k = 0; k < plan->num_sizes; k++) {
    td_size* size = &plan->sizes[k];
    snprintf(r->where, sizeof r->where, "plan size %u", (unsigned)k);
    if (size->op == TD_SIZE_INPUT && !check_input_size(r, size)) return false;
    if (size->op > TD_SIZE_DATA)
      size->segment = later(segment_of(plan, size->a), segment_of(plan, size->b));
  }
  return true;
}

static bool settle_values(td_reader* r) {
  td_plan* plan = r->plan;
  for (uint32_t v = 0; v < plan->num_values; v++) {
    td_value* value = &plan->values[v];
    for (int32_t i = 0; i < value->ndim; i++)
      value->segment = later(value->segment, segment_of(plan, value->extents[i]));
    if (value->kind == TD_VALUE_WORKSPACE || value->kind == TD_VALUE_VIEW)
      value->segment = later(value->segment, segment_of(plan, value->extra));
    value->segment = later(value->segment, plan->values[value->of].segment);
    if (value->kind != TD_VALUE_INPUT || value->segment == 0) continue;
    td_fail(r->error, TD_PLAN, "plan value %u: the shape of an input cannot come from data",
            (unsigned)v);
    return false;
  }
  return true;
}

static bool check_known(td_reader* r, uint32_t i, uint32_t segment) {
  const td_instruction* instruction = &r->plan->instructions[i];
  bool known = true;
  for (uint32_t a = 0; a < instruction->num_args; a++)
    known &= r->plan->values[instruction->args[a]].segment <= segment;
  for (uint32_t k = 0; instruction->extents != NULL && k < instruction->num_dims; k++)
    known &= segment_of(r->plan, instruction->extents[k]) <= segment;
  for (uint32_t k = 0; instruction->block != NULL && k < instruction->block->num_given; k++)
    known &= segment_of(r->plan, instruction->block->given[k]) <= segment;
  if (known) return true;
  td_fail(r->error, TD_PLAN, "plan instruction %u: a size it needs is read later", (unsigned)i);
  return false;
}

bool td_check_sizes(td_reader* r) {
  if (!make_segments(r) || !settle_sizes(r) || !settle_values(r)) return false;
  for (uint32_t k = 0; k < r->plan->num_checks; k++) {
    td_size_check* check = &r->plan->checks[k];
    check->segment = later(segment_of(r->plan, check->a), segment_of(r->plan, check->b));
  }
  for (uint32_t s = 0; s < r->plan->num_segments; s++)
    for (uint32_t i = r->plan->segments[s].begin; i < r->plan->segments[s].end; i++)
      if (!check_known(r, i, s)) return false;
  return true;
}
