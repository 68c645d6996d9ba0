/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents of kernel arguments that are computed from the kernel's sizes, such as n * 2 + 1. What
 * treadle/runtime/extents.py does, without its unbounded integers.
 */
#include <string.h>

#include "session.h"

#define DEEPEST 64

static const char* const OPERATIONS[] = {"add",      "sub", "mul", "floordiv",
                                         "floormod", "min", "max", "broadcast"};
enum { ADD, SUB, MUL, FLOORDIV, FLOORMOD, MIN, MAX, BROADCAST, NUM_OPERATIONS };

static int operation_of(const td_json* formula) {
  for (int i = 0; i < NUM_OPERATIONS; i++)
    if (strcmp(formula->child->text, OPERATIONS[i]) == 0) return i;
  return -1;
}

static bool is_size(const td_json* formula) { return strcmp(formula->child->text, "size") == 0; }

static bool is_formula(const td_json* formula, uint32_t num_sizes, int depth) {
  if (formula == NULL || depth > DEEPEST) return false;
  if (formula->type == TD_JSON_INTEGER) return true;
  if (formula->type != TD_JSON_ARRAY || formula->count < 2 ||
      formula->child->type != TD_JSON_STRING)
    return false;
  const td_json* a = formula->child->next;
  if (is_size(formula))
    return formula->count == 2 && a->type == TD_JSON_INTEGER && a->integer >= 0 &&
           a->integer < num_sizes;
  return formula->count == 3 && operation_of(formula) >= 0 &&
         is_formula(a, num_sizes, depth + 1) && is_formula(a->next, num_sizes, depth + 1);
}

bool rpc_is_formula(const td_json* formula, uint32_t num_sizes) {
  return is_formula(formula, num_sizes, 0);
}

static bool divided(int64_t a, int64_t b, int64_t* quotient, int64_t* rest) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *quotient = a / b;
  *rest = a % b;
  if (*rest != 0 && (*rest < 0) != (b < 0)) {
    --*quotient;
    *rest += b;
  }
  return true;
}

static bool apply(int operation, int64_t a, int64_t b, int64_t* value) {
  int64_t other;
  switch (operation) {
    case ADD: return !__builtin_add_overflow(a, b, value);
    case SUB: return !__builtin_sub_overflow(a, b, value);
    case MUL: return !__builtin_mul_overflow(a, b, value);
    case FLOORDIV: return divided(a, b, value, &other);
    case FLOORMOD: return divided(a, b, &other, value);
    case MIN: *value = a < b ? a : b; return true;
    case MAX: *value = a > b ? a : b; return true;
    default: *value = a == 1 ? b : a; return true;
  }
}

bool rpc_formula_value(const td_json* formula, const int64_t* sizes, int64_t* value) {
  int64_t a, b;
  if (formula->type == TD_JSON_INTEGER) {
    *value = formula->integer;
    return true;
  }
  const td_json* first = formula->child->next;
  if (is_size(formula)) {
    *value = sizes[first->integer];
    return true;
  }
  return rpc_formula_value(first, sizes, &a) && rpc_formula_value(first->next, sizes, &b) &&
         apply(operation_of(formula), a, b, value);
}

/* The degree in a size; 2 for more than 1 and for what is no polynomial. */
static int degree(const td_json* formula, int64_t size) {
  if (formula->type == TD_JSON_INTEGER) return 0;
  const td_json* first = formula->child->next;
  if (is_size(formula)) return first->integer == size;
  int a = degree(first, size), b = degree(first->next, size);
  switch (operation_of(formula)) {
    case ADD:
    case SUB: return a > b ? a : b;
    case MUL: return a + b < 2 ? a + b : 2;
    default: return a > 0 || b > 0 ? 2 : 0;
  }
}

/* Whether all unknown sizes of a formula are one; `found` is that, -1 before any. */
static bool one_unknown(const td_json* formula, const bool* is_known, int64_t* found) {
  if (formula->type == TD_JSON_INTEGER) return true;
  const td_json* first = formula->child->next;
  if (is_size(formula)) {
    if (is_known[first->integer] || *found == first->integer) return true;
    bool is_first = *found < 0;
    *found = first->integer;
    return is_first;
  }
  return one_unknown(first, is_known, found) && one_unknown(first->next, is_known, found);
}

int64_t rpc_formula_unknown(const td_json* formula, const bool* is_known) {
  int64_t found = -1;
  if (!one_unknown(formula, is_known, &found) || found < 0) return -1;
  return degree(formula, found) == 1 ? found : -1;
}

static bool value_at(const td_json* formula, int64_t* sizes, int64_t size, int64_t at,
                     int64_t* value) {
  sizes[size] = at;
  return rpc_formula_value(formula, sizes, value);
}

bool rpc_formula_solved(const td_json* formula, int64_t* sizes, int64_t size, int64_t value) {
  int64_t begin, next, step, rest, found, check;
  if (!value_at(formula, sizes, size, 0, &begin) || !value_at(formula, sizes, size, 1, &next) ||
      __builtin_sub_overflow(next, begin, &step) || __builtin_sub_overflow(value, begin, &rest))
    return false;
  found = step == 0 ? 0 : rest / step;
  return found >= 0 && value_at(formula, sizes, size, found, &check) && check == value;
}
