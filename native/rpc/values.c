/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in messages: null, booleans, integers, floats, text, bytes and lists, as bytes.
 *
 * They are checked once as a whole and then read where they lie: no message takes more memory than
 * it brings.
 */
#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { TAG_NULL, TAG_FALSE, TAG_TRUE, TAG_INT, TAG_FLOAT, TAG_TEXT, TAG_BYTES, TAG_LIST };

/* ---- checking -------------------------------------------------------------------------------- */

/* The bytes of the character that begins here, 0 where none does (RFC 3629). */
static size_t utf8_character(const uint8_t* at, size_t left) {
  if (at[0] < 0x80) return 1;
  size_t size = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4 || size > left) return 0;
  for (size_t i = 1; i < size; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  bool is_overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
  bool is_surrogate = at[0] == 0xed && at[1] >= 0xa0;
  bool is_beyond = at[0] == 0xf4 && at[1] >= 0x90;
  return is_overlong || is_surrogate || is_beyond ? 0 : size;
}

static bool is_utf8(const uint8_t* data, size_t size) {
  for (size_t i = 0, step; i < size; i += step)
    if ((step = utf8_character(data + i, size - i)) == 0) return false;
  return true;
}

typedef struct {
  const uint8_t* at;
  const uint8_t* end;
  rpc_error* error;
} checker;

static bool has(const checker* c, size_t size) {
  if ((size_t)(c->end - c->at) >= size) return true;
  return rpc_fail(c->error, "a message ends in the middle of a value");
}

static bool check_value(checker* c, int depth);

static bool check_list(checker* c, uint32_t count, int depth) {
  if (depth >= RPC_DEEPEST)
    return rpc_fail(c->error, "a message holds lists more than %d deep", RPC_DEEPEST);
  if (count > (size_t)(c->end - c->at)) /* every value takes a byte or more */
    return rpc_fail(c->error, "a message promises more values than it holds");
  for (uint32_t i = 0; i < count; i++)
    if (!check_value(c, depth + 1)) return false;
  return true;
}

static bool check_sized(checker* c, uint8_t tag, int depth) {
  if (!has(c, 4)) return false;
  uint32_t count = (uint32_t)rpc_load(c->at, 4);
  c->at += 4;
  if (tag == TAG_LIST) return check_list(c, count, depth);
  if (!has(c, count)) return false;
  if (tag == TAG_TEXT && !is_utf8(c->at, count))
    return rpc_fail(c->error, "a message holds text that is not UTF-8");
  c->at += count;
  return true;
}

static bool check_value(checker* c, int depth) {
  if (!has(c, 1)) return false;
  uint8_t tag = *c->at++;
  if (tag <= TAG_TRUE) return true;
  if (tag == TAG_INT || tag == TAG_FLOAT) {
    if (!has(c, 8)) return false;
    c->at += 8;
    return true;
  }
  if (tag <= TAG_LIST) return check_sized(c, tag, depth);
  return rpc_fail(c->error, "a message holds a value of an unknown kind, %u", (unsigned)tag);
}

bool rpc_check_values(const uint8_t* data, size_t size, rpc_error* error) {
  checker c = {data, data + size, error};
  if (size > 0 && data[0] != TAG_LIST)
    return rpc_fail(error, "a message does not begin with a list");
  if (!check_value(&c, 0)) return false;
  if (c.at == c.end) return true;
  return rpc_fail(error, "a message has %zu bytes too many", (size_t)(c.end - c.at));
}

/* ---- reading --------------------------------------------------------------------------------- */

rpc_args rpc_args_of(const uint8_t* values, const char* function, rpc_error* error) {
  rpc_args args = {.at = values + 5, .left = (uint32_t)rpc_load(values + 1, 4), .error = error};
  strncpy(args.function, function, sizeof args.function - 1);
  return args;
}

/* Where the value after this one begins. */
static const uint8_t* after(const uint8_t* at) {
  uint8_t tag = *at++;
  if (tag <= TAG_TRUE) return at;
  if (tag == TAG_INT || tag == TAG_FLOAT) return at + 8;
  uint32_t count = (uint32_t)rpc_load(at, 4);
  at += 4;
  if (tag != TAG_LIST) return at + count;
  for (uint32_t i = 0; i < count; i++) at = after(at);
  return at;
}

static void refuse(rpc_args* args, uint8_t tag, const char* wanted) {
  static const char* const NAMES[] = {"null",    "a boolean", "a boolean", "an integer",
                                      "a float", "a text",    "bytes",     "a list"};
  rpc_fail(args->error, "argument %u of %s is %s, it must be %s", (unsigned)args->place,
           args->function, NAMES[tag], wanted);
  args->failed = true;
}

/* The next value, if it has one of two tags; NULL if not. */
static const uint8_t* take(rpc_args* args, uint8_t tag, uint8_t other, const char* wanted) {
  if (args->failed) return NULL;
  if (args->left == 0) {
    rpc_fail(args->error, "%s lacks argument %u (%s)", args->function, (unsigned)args->place,
             wanted);
    args->failed = true;
    return NULL;
  }
  const uint8_t* at = args->at;
  if (*at != tag && *at != other) {
    refuse(args, *at, wanted);
    return NULL;
  }
  args->at = after(at);
  args->left--;
  args->place++;
  return at + 1;
}

static void fail_range(rpc_args* args, double value) {
  rpc_fail(args->error, "argument %u of %s is %.17g, which is out of range",
           (unsigned)args->place - 1, args->function, value);
  args->failed = true;
}

int64_t rpc_take_int(rpc_args* args, int64_t low, int64_t high) {
  const uint8_t* at = take(args, TAG_INT, TAG_INT, "an integer");
  if (at == NULL) return 0;
  int64_t value = (int64_t)rpc_load(at, 8);
  if (value >= low && value <= high) return value;
  fail_range(args, (double)value);
  return 0;
}

double rpc_take_number(rpc_args* args, double low, double high) {
  const uint8_t* at = take(args, TAG_FLOAT, TAG_INT, "a number");
  if (at == NULL) return 0;
  uint64_t bits = rpc_load(at, 8);
  double value = (double)(int64_t)bits;
  if (at[-1] == TAG_FLOAT) memcpy(&value, &bits, sizeof value);
  if (value >= low && value <= high) return value; /* false for NaN, too */
  fail_range(args, value);
  return 0;
}

static rpc_text take_sized(rpc_args* args, uint8_t tag, const char* wanted) {
  const uint8_t* at = take(args, tag, tag, wanted);
  if (at == NULL) return (rpc_text){"", 0};
  return (rpc_text){(const char*)at + 4, (size_t)rpc_load(at, 4)};
}

static rpc_text not_longer(rpc_args* args, rpc_text found, size_t size, size_t longest) {
  if (size <= longest) return found;
  rpc_fail(args->error, "argument %u of %s is too long", (unsigned)args->place - 1,
           args->function);
  args->failed = true;
  return (rpc_text){"", 0};
}

rpc_text rpc_take_text(rpc_args* args, size_t longest) {
  rpc_text found = take_sized(args, TAG_TEXT, "a text");
  size_t characters = 0;
  for (size_t i = 0; i < found.size; i++) characters += (found.data[i] & 0xc0) != 0x80;
  return not_longer(args, found, characters, longest);
}

rpc_text rpc_take_bytes(rpc_args* args, size_t longest) {
  rpc_text found = take_sized(args, TAG_BYTES, "bytes");
  return not_longer(args, found, found.size, longest);
}

rpc_args rpc_take_list(rpc_args* args) {
  rpc_args inner = *args;
  const uint8_t* at = take(args, TAG_LIST, TAG_LIST, "a list");
  inner.failed = at == NULL;
  inner.left = at == NULL ? 0 : (uint32_t)rpc_load(at, 4);
  inner.at = at == NULL ? NULL : at + 4;
  inner.place = 0;
  return inner;
}

void rpc_args_leave(rpc_args* args, const rpc_args* inner) {
  args->failed = args->failed || inner->failed;
}

bool rpc_args_end(rpc_args* args) {
  if (args->failed) return false;
  if (args->left == 0) return true;
  args->failed = true;
  return rpc_fail(args->error, "%s is given %u arguments too many", args->function,
                  (unsigned)args->left);
}

bool rpc_copy_text(rpc_text text, char* buffer, size_t size) {
  if (text.size >= size || memchr(text.data, '\0', text.size) != NULL) return false;
  memcpy(buffer, text.data, text.size);
  buffer[text.size] = '\0';
  return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Room for so many bytes more, or NULL. */
static uint8_t* room(rpc_out* out, size_t size) {
  if (out->failed) return NULL;
  if (size > out->capacity - out->size) {
    size_t wanted = 2 * out->capacity + size + 256;
    uint8_t* grown = size < SIZE_MAX / 4 ? realloc(out->data, wanted) : NULL;
    if (grown == NULL) {
      out->failed = true;
      return NULL;
    }
    out->data = grown;
    out->capacity = wanted;
  }
  out->size += size;
  return out->data + out->size - size;
}

void rpc_put(rpc_out* out, const void* data, size_t size) {
  uint8_t* at = room(out, size);
  if (at != NULL && size > 0) memcpy(at, data, size);
}

static void put_tagged(rpc_out* out, uint8_t tag, uint64_t value, int bytes) {
  uint8_t* at = room(out, (size_t)bytes + 1);
  if (at == NULL) return;
  at[0] = tag;
  rpc_store(at + 1, value, bytes);
}

void rpc_put_int(rpc_out* out, int64_t value) { put_tagged(out, TAG_INT, (uint64_t)value, 8); }

void rpc_put_float(rpc_out* out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_tagged(out, TAG_FLOAT, bits, 8);
}

void rpc_put_text(rpc_out* out, const char* text) {
  size_t size = strlen(text);
  put_tagged(out, TAG_TEXT, size, 4);
  uint8_t* at = room(out, size);
  if (at == NULL || size == 0) return;
  memcpy(at, text, size);
  for (size_t i = 0, step; i < size; i += step) {
    step = utf8_character(at + i, size - i);
    if (step > 0) continue;
    at[i] = '?';
    step = 1;
  }
}

void rpc_put_bytes(rpc_out* out, const void* data, size_t size) {
  put_tagged(out, TAG_BYTES, size, 4);
  rpc_put(out, data, size);
}

void rpc_put_list(rpc_out* out, uint32_t count) { put_tagged(out, TAG_LIST, count, 4); }

void rpc_put_error(rpc_out* out, const rpc_error* error) {
  rpc_put_list(out, 4);
  rpc_put_text(out, error->kind);
  rpc_put_text(out, error->problem);
  rpc_put_text(out, error->at);
  rpc_put_text(out, error->hint);
}

void rpc_out_free(rpc_out* out) {
  free(out->data);
  *out = (rpc_out){0};
}
