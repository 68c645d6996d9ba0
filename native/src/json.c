/* SPDX-License-Identifier: Apache-2.0 */
/* A strict JSON reader for input nobody vouches for: RFC 8259, depth and size capped. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_DEPTH 64
#define MAX_BYTES ((size_t)64 << 20)
#define MAX_NODES 3000000u

typedef struct {
  const char* start;
  const char* at;
  const char* end;
  td_zone* zone;
  td_error* error;
  uint32_t nodes;
} reader;

static const char* const TYPE_NAMES[] = {"null",   "a bool",  "an integer", "a number",
                                         "a text", "a list", "an object"};

const char* td_json_type_name(td_json_type type) { return TYPE_NAMES[type]; }

static bool fail(reader* r, const char* what) {
  td_fail(r->error, TD_ARTIFACT, "the JSON text is malformed at byte %zu: %s",
          (size_t)(r->at - r->start), what);
  return false;
}

static bool out_of_memory(reader* r) {
  td_fail(r->error, TD_MEMORY, "not enough memory to read %zu bytes of JSON",
          (size_t)(r->end - r->start));
  return false;
}

static void skip_space(reader* r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
    r->at++;
}

static bool expect(reader* r, const char* word) {
  size_t bytes = strlen(word);
  if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0)
    return fail(r, "this is not a JSON value");
  r->at += bytes;
  return true;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Length of the UTF-8 sequence at `s`, 0 if it is not valid. */
static size_t utf8_length(const unsigned char* s, size_t left) {
  if (s[0] < 0x80) return 1;
  size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || length > left) return 0;
  for (size_t i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
  if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
  return length;
}

static bool read_hex4(reader* r, uint32_t* code) {
  *code = 0;
  if (r->end - r->at < 4) return fail(r, "the \\u escape is cut off");
  for (int i = 0; i < 4; i++) {
    char c = *r->at++;
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16u;
    if (digit == 16) return fail(r, "the \\u escape has a wrong digit");
    *code = *code * 16 + digit;
  }
  return true;
}

static char* put_utf8(char* out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (char)code;
  } else if (code < 0x800) {
    *out++ = (char)(0xc0 | code >> 6);
    *out++ = (char)(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out++ = (char)(0xe0 | code >> 12);
    *out++ = (char)(0x80 | (code >> 6 & 0x3f));
    *out++ = (char)(0x80 | (code & 0x3f));
  } else {
    *out++ = (char)(0xf0 | code >> 18);
    *out++ = (char)(0x80 | (code >> 12 & 0x3f));
    *out++ = (char)(0x80 | (code >> 6 & 0x3f));
    *out++ = (char)(0x80 | (code & 0x3f));
  }
  return out;
}

static bool read_unicode_escape(reader* r, char** out) {
  uint32_t code, low;
  if (!read_hex4(r, &code)) return false;
  if (code == 0) return fail(r, "a NUL character is not allowed");
  if (code >= 0xdc00 && code <= 0xdfff) return fail(r, "a lone surrogate is not a character");
  if (code >= 0xd800 && code <= 0xdbff) {
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
      return fail(r, "a lone surrogate is not a character");
    r->at += 2;
    if (!read_hex4(r, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return fail(r, "a lone surrogate is not a character");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  *out = put_utf8(*out, code);
  return true;
}

static bool read_escape(reader* r, char** out) {
  static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) return fail(r, "the text is cut off");
  char c = *r->at++;
  if (c == 'u') return read_unicode_escape(r, out);
  const char* name = strchr(NAMES, c);
  if (name == NULL || c == '\0') return fail(r, "unknown escape");
  *(*out)++ = VALUES[name - NAMES];
  return true;
}

/* Bytes from the cursor to the closing quote: room enough for the decoded text. */
static size_t raw_length(const reader* r) {
  const char* at = r->at;
  while (at < r->end && *at != '"') at += *at == '\\' ? 2 : 1;
  return (size_t)((at < r->end ? at : r->end) - r->at);
}

static bool read_text(reader* r, const char** text) {
  r->at++; /* the quote */
  char* out = td_zone_alloc(r->zone, raw_length(r) + 1, 1);
  if (out == NULL) return out_of_memory(r);
  *text = out;
  while (r->at < r->end && *r->at != '"') {
    size_t length = utf8_length((const unsigned char*)r->at, (size_t)(r->end - r->at));
    if (length == 0) return fail(r, "the text is not valid UTF-8");
    if ((unsigned char)*r->at < 0x20) return fail(r, "a control character is not allowed in text");
    if (*r->at == '\\') {
      r->at++;
      if (!read_escape(r, &out)) return false;
      continue;
    }
    memcpy(out, r->at, length);
    out += length;
    r->at += length;
  }
  if (r->at == r->end) return fail(r, "the text is cut off");
  r->at++;
  *out = '\0';
  return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool skip_digits(reader* r) {
  const char* start = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > start;
}

/* The digits [from, to) as an integer, if it fits. */
static bool to_integer(const char* from, const char* to, int64_t* value) {
  bool negative = *from == '-';
  uint64_t limit = negative ? (uint64_t)1 << 63 : ((uint64_t)1 << 63) - 1, magnitude = 0;
  for (const char* at = from + negative; at < to; at++) {
    uint64_t digit = (uint64_t)(*at - '0');
    if (magnitude > (limit - digit) / 10) return false;
    magnitude = magnitude * 10 + digit;
  }
  *value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
  return true;
}

static bool read_number(reader* r, td_json* node) {
  const char* start = r->at;
  bool whole = true;
  if (*r->at == '-') r->at++;
  const char* digits = r->at;
  if (!skip_digits(r)) return fail(r, "this is not a JSON value");
  if (*digits == '0' && r->at - digits > 1) return fail(r, "a number starts with 0");
  if (r->at < r->end && *r->at == '.') {
    r->at++;
    whole = false;
    if (!skip_digits(r)) return fail(r, "digits are missing after the point");
  }
  if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
    r->at++;
    whole = false;
    if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
    if (!skip_digits(r)) return fail(r, "the exponent has no digits");
  }
  if (whole && to_integer(start, r->at, &node->integer)) {
    node->type = TD_JSON_INTEGER;
    return true;
  }
  size_t bytes = (size_t)(r->at - start);
  char* text = td_zone_alloc(r->zone, bytes + 1, 1);
  if (text == NULL) return out_of_memory(r);
  memcpy(text, start, bytes);
  node->type = TD_JSON_REAL;
  node->text = text;
  return true;
}

/* ---- lists and objects ----------------------------------------------------------------------- */

static bool read_value(reader* r, td_json* node, int depth);

static bool keys_are_unique(reader* r, const td_json* object) {
  if (object->count < 2) return true;
  td_name* names = malloc(object->count * sizeof *names);
  if (names == NULL) return out_of_memory(r);
  size_t count = 0;
  for (const td_json* m = object->child; m != NULL; m = m->next) names[count++].name = m->key;
  td_names_sort(names, count);
  bool unique = td_names_duplicate(names, count) == NULL;
  free(names);
  return unique || fail(r, "the object before has a key twice");
}

static bool read_key(reader* r, td_json* member) {
  skip_space(r);
  if (r->at == r->end || *r->at != '"') return fail(r, "a key is missing");
  if (!read_text(r, &member->key)) return false;
  skip_space(r);
  if (r->at == r->end || *r->at != ':') return fail(r, "a ':' is missing");
  r->at++;
  return true;
}

static bool read_members(reader* r, td_json* node, char close, int depth) {
  td_json** tail = &node->child;
  r->at++; /* the bracket */
  skip_space(r);
  if (r->at < r->end && *r->at == close) {
    r->at++;
    return true;
  }
  for (;;) {
    if (++r->nodes > MAX_NODES) return fail(r, "too many values");
    td_json* member = td_zone_alloc(r->zone, 1, sizeof *member);
    if (member == NULL) return out_of_memory(r);
    if (node->type == TD_JSON_OBJECT && !read_key(r, member)) return false;
    if (!read_value(r, member, depth + 1)) return false;
    *tail = member;
    tail = &member->next;
    node->count++;
    skip_space(r);
    if (r->at == r->end) return fail(r, "the text ends inside a list or object");
    char c = *r->at++;
    if (c == close) return node->type == TD_JSON_ARRAY || keys_are_unique(r, node);
    if (c != ',') return fail(r, "a ',' is missing");
  }
}

static bool read_bare_value(reader* r, td_json* node, int depth) {
  switch (*r->at) {
    case '{':
      node->type = TD_JSON_OBJECT;
      return read_members(r, node, '}', depth);
    case '[':
      node->type = TD_JSON_ARRAY;
      return read_members(r, node, ']', depth);
    case '"':
      node->type = TD_JSON_STRING;
      return read_text(r, &node->text);
    case 't':
      node->type = TD_JSON_BOOL;
      node->integer = 1;
      return expect(r, "true");
    case 'f':
      node->type = TD_JSON_BOOL;
      return expect(r, "false");
    case 'n':
      return expect(r, "null");
    default:
      return read_number(r, node);
  }
}

static bool read_value(reader* r, td_json* node, int depth) {
  if (depth > MAX_DEPTH) return fail(r, "lists and objects are nested too deep");
  skip_space(r);
  if (r->at == r->end) return fail(r, "a value is missing");
  node->start = (uint32_t)(r->at - r->start);
  if (!read_bare_value(r, node, depth)) return false;
  node->end = (uint32_t)(r->at - r->start);
  return true;
}

int32_t td_json_parse(const char* text, size_t bytes, td_zone* zone, td_json** root,
                      td_error* error) {
  if (bytes > MAX_BYTES)
    return td_fail(error, TD_ARTIFACT, "the JSON text has %zu bytes; %zu are accepted", bytes,
                   MAX_BYTES);
  td_error ignored;
  if (error == NULL) error = &ignored;
  reader r = {text, text, text + bytes, zone, error, 0};
  *root = td_zone_alloc(zone, 1, sizeof **root);
  if (*root == NULL) return td_fail(error, TD_MEMORY, "not enough memory to read JSON");
  if (!read_value(&r, *root, 0)) return error->code;
  skip_space(&r);
  if (r.at == r.end) return TD_OK;
  fail(&r, "there is text after the value");
  return error->code;
}

const td_json* td_json_get(const td_json* object, const char* key) {
  if (object == NULL || object->type != TD_JSON_OBJECT) return NULL;
  for (const td_json* member = object->child; member != NULL; member = member->next)
    if (strcmp(member->key, key) == 0) return member;
  return NULL;
}
