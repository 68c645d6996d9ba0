/* SPDX-License-Identifier: Apache-2.0 */
/* The branches and loops of a dynamic plan: bodies are plans inside the plan. */
#include <stdio.h>
#include <string.h>

#include "reader.h"

/* ---- bodies ---------------------------------------------------------------------------------- */

/* Reads the bodies, in which a reader of their own says where something is wrong. */
bool td_read_plans(td_reader* r, const td_json* root) {
  td_plan* plan = r->plan;
  if (td_json_get(root, "plans") == NULL) return true;
  if (!plan->is_dynamic || plan->depth >= TD_MAX_DEPTH) {
    td_fail(r->error, TD_PLAN, "the plan has bodies inside bodies deeper than %d, or fixed sizes",
            TD_MAX_DEPTH);
    return false;
  }
  const td_json* list = td_read_list(r, root, "plans");
  if (list == NULL) return false;
  plan->plans = td_zone_alloc(r->zone, list->count, sizeof *plan->plans);
  if (plan->plans == NULL) return td_read_no_memory(r);
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    td_plan* body = &plan->plans[plan->num_plans++];
    td_reader inner = {r->zone, body, r->error, "a body"};
    body->depth = plan->depth + 1;
    if (!td_read_body(&inner, item)) return false;
    if (body->is_dynamic) continue;
    td_fail(r->error, TD_PLAN, "a body has fixed sizes: it is no plan of version 2");
    return false;
  }
  return true;
}

static const td_value* input_of(const td_plan* body, uint32_t i) {
  return &body->values[body->inputs[i].value];
}

static const td_value* output_of(const td_plan* body, uint32_t i) {
  return &body->values[body->outputs[i].value];
}

static bool same_kind(const td_value* a, const td_value* b) {
  return a->dtype == b->dtype && a->ndim == b->ndim;
}

static bool is_scalar(const td_value* value, const char* dtype) {
  return value->ndim == 0 && strcmp(value->dtype->name, dtype) == 0;
}

static bool wrong(td_reader* r, const char* what) {
  td_fail(r->error, TD_PLAN, "%s: %s", r->where, what);
  return false;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool get_body(td_reader* r, const td_json* object, const char* key, uint32_t* body) {
  return td_read_number_of(r, td_json_get(object, key), key, "inner plan", r->plan->num_plans, body);
}

static bool check_given(td_reader* r, const td_block* block, uint32_t body) {
  return r->plan->plans[body].num_given == block->num_given ||
         wrong(r, "a body is not given as many sizes as it takes");
}

/* The operands from `skip` on are those of the inputs from `first` on. */
static bool check_operands(td_reader* r, const td_instruction* instruction, uint32_t skip,
                           const td_plan* body, uint32_t first) {
  uint32_t count = instruction->num_args - skip;
  if (body->num_inputs != first + count) return wrong(r, "a body has another number of inputs");
  for (uint32_t i = 0; i < count; i++)
    if (!same_kind(&r->plan->values[instruction->args[skip + i]], input_of(body, first + i)))
      return wrong(r, "an operand differs in element type or rank from the input of a body");
  return true;
}

static bool check_if(td_reader* r, const td_instruction* instruction, td_block* block) {
  const td_plan *then = &r->plan->plans[block->bodies[0]], *other = &r->plan->plans[block->bodies[1]];
  if (instruction->num_args < 1 || !is_scalar(&r->plan->values[instruction->args[0]], "bool"))
    return wrong(r, "the condition is no truth value");
  if (!check_operands(r, instruction, 1, then, 0) || !check_operands(r, instruction, 1, other, 0))
    return false;
  block->num_results = then->num_outputs;
  if (other->num_outputs != then->num_outputs) return wrong(r, "the branches give different results");
  for (uint32_t i = 0; i < then->num_outputs; i++)
    if (!same_kind(output_of(then, i), output_of(other, i)))
      return wrong(r, "the branches give different results");
  return check_given(r, block, block->bodies[0]) && check_given(r, block, block->bodies[1]);
}

static bool check_loop(td_reader* r, const td_instruction* instruction, td_block* block) {
  const td_plan* body = &r->plan->plans[block->bodies[0]];
  const td_value* values = r->plan->values;
  if (instruction->num_args < 2 || !is_scalar(&values[instruction->args[0]], "int64") ||
      !is_scalar(&values[instruction->args[1]], "bool"))
    return wrong(r, "a loop takes a count and a condition first");
  if (!check_operands(r, instruction, 2, body, 2)) return false;
  if (!is_scalar(input_of(body, 0), "int64") || !is_scalar(input_of(body, 1), "bool") ||
      body->num_outputs < 1 || !is_scalar(output_of(body, 0), "bool"))
    return wrong(r, "the body of a loop takes a count and a condition and gives a condition");
  if (block->states >= body->num_outputs || block->states > body->num_inputs - 2)
    return wrong(r, "a loop has more states than its body");
  for (uint32_t i = 0; i < block->states; i++)
    if (!same_kind(input_of(body, 2 + i), output_of(body, 1 + i)))
      return wrong(r, "a state of a loop changes its element type or rank");
  block->num_results = body->num_outputs - 1;
  return check_given(r, block, block->bodies[0]);
}

/* The output of a body that a result is, or (for a row of a loop) is made of. */
static const td_value* source_of(const td_plan* plan, const td_instruction* i, uint32_t result) {
  const td_plan* body = &plan->plans[i->block->bodies[0]];
  return output_of(body, i->op == TD_OP_LOOP ? result + 1 : result);
}

static int32_t rank_of(const td_plan* plan, const td_instruction* i, uint32_t result) {
  bool is_row = i->op == TD_OP_LOOP && result >= i->block->states;
  return source_of(plan, i, result)->ndim + (is_row ? 1 : 0);
}

/* One entry of "sizes": {"size": k, "result": j, "axis": a}. */
static bool read_result_size(td_reader* r, const td_json* object, td_instruction* instruction,
                             uint32_t* size, uint32_t* result, uint32_t* axis) {
  if (!td_read_number_of(r, td_json_get(object, "size"), "size", "size", r->plan->num_sizes, size) ||
      !td_read_number_of(r, td_json_get(object, "result"), "result", "result",
                         instruction->block->num_results, result) ||
      !td_read_number_of(r, td_json_get(object, "axis"), "axis", "axis", TD_MAX_NDIM, axis))
    return false;
  if (r->plan->sizes[*size].op != TD_SIZE_DATA)
    return wrong(r, "a size of its results is one that is computed");
  return (int32_t)*axis < rank_of(r->plan, instruction, *result) ||
         wrong(r, "a result has no such axis");
}

static bool read_result_sizes(td_reader* r, const td_json* object, td_instruction* instruction,
                              td_block* block) {
  const td_json* list = td_read_list(r, object, "sizes");
  if (list == NULL) return false;
  uint32_t* columns = td_zone_alloc(r->zone, (size_t)list->count * 3 + 1, sizeof *columns);
  if (columns == NULL) return td_read_no_memory(r);
  uint32_t *sizes = columns, *result = columns + list->count, *axis = result + list->count, k = 0;
  for (const td_json* item = list->child; item != NULL; item = item->next, k++)
    if (!read_result_size(r, item, instruction, &sizes[k], &result[k], &axis[k])) return false;
  instruction->sizes = sizes;
  instruction->num_dims = k;
  block->result = result;
  block->axis = axis;
  return true;
}

bool td_read_block(td_reader* r, const td_json* object, td_instruction* instruction) {
  td_block* block = td_zone_alloc(r->zone, 1, sizeof *block);
  if (block == NULL) return td_read_no_memory(r);
  bool is_loop = instruction->op == TD_OP_LOOP;
  instruction->block = block;
  if (!get_body(r, object, is_loop ? "body" : "then", &block->bodies[0]) ||
      !get_body(r, object, is_loop ? "body" : "else", &block->bodies[1]) ||
      !td_read_args(r, object, instruction) ||
      !td_read_extents(r, object, "given", &block->given, &block->num_given))
    return false;
  if (is_loop && !td_read_number_of(r, td_json_get(object, "states"), "states", "state",
                                    UINT32_MAX, &block->states))
    return false;
  bool fits = is_loop ? check_loop(r, instruction, block) : check_if(r, instruction, block);
  return fits && read_result_sizes(r, object, instruction, block);
}

/* The block that a result follows, with nothing but other results between. */
static bool find_block(td_reader* r, uint32_t* source) {
  for (uint32_t i = r->plan->num_instructions; i-- > 0;) {
    td_op op = r->plan->instructions[i].op;
    *source = i;
    if (op == TD_OP_IF || op == TD_OP_LOOP) return true;
    if (op != TD_OP_RESULT) break;
  }
  return wrong(r, "a result does not follow a branch or loop");
}

bool td_read_result(td_reader* r, const td_json* object, td_instruction* instruction) {
  uint32_t* to = td_zone_alloc(r->zone, 1, sizeof *to);
  if (to == NULL) return td_read_no_memory(r);
  instruction->args = to;
  instruction->num_args = 1;
  if (!find_block(r, &instruction->source) ||
      !td_read_id(r, td_json_get(object, "to"), "to", r->plan->num_values, to))
    return false;
  const td_instruction* source = &r->plan->instructions[instruction->source];
  const td_value* value = &r->plan->values[*to];
  if (!td_read_number_of(r, td_json_get(object, "index"), "index", "result",
                         source->block->num_results, &instruction->index))
    return false;
  if (value->dtype != source_of(r->plan, source, instruction->index)->dtype ||
      value->ndim != rank_of(r->plan, source, instruction->index))
    return wrong(r, "a result goes to a value of another element type or rank");
  return td_is_writable(r->plan, *to) || wrong(r, "a result goes to an input or constant");
}
