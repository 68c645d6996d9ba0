/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as Python's json.dumps(..., separators=(",", ":"), sort_keys=True) writes it: the hash of a
 * manifest's table of kernels is that of these bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

static void put(rpc_out* out, const char* text) { rpc_put(out, text, strlen(text)); }

/* Reads one character of UTF-8 that was checked; returns what follows it. */
static const unsigned char* decode(const unsigned char* at, uint32_t* character) {
  int more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc0 ? 1 : 0;
  *character = more == 0 ? *at : *at & (0x3fu >> more);
  for (at++; more > 0; more--, at++) *character = *character << 6 | (*at & 0x3f);
  return at;
}

static void put_escaped(rpc_out* out, uint32_t character) {
  char text[16];
  if (character >= 0x10000) {
    character -= 0x10000;
    snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + (character >> 10)),
             (unsigned)(0xdc00 + (character & 0x3ff)));
  } else {
    snprintf(text, sizeof text, "\\u%04x", (unsigned)character);
  }
  put(out, text);
}

static void put_string(rpc_out* out, const char* text) {
  static const char SPECIAL[] = "\"\\\n\r\t\f\b", LETTERS[] = "\"\\nrtfb";
  put(out, "\"");
  for (const unsigned char* at = (const unsigned char*)text; *at != '\0';) {
    uint32_t character;
    at = decode(at, &character);
    const char* special = character < 128 ? strchr(SPECIAL, (int)character) : NULL;
    char plain[3] = {'\\', special != NULL ? LETTERS[special - SPECIAL] : '\0', '\0'};
    if (special != NULL) {
      put(out, plain);
    } else if (character >= ' ' && character < 127) {
      plain[0] = (char)character;
      put(out, plain);
    } else {
      put_escaped(out, character);
    }
  }
  put(out, "\"");
}

static int by_key(const void* a, const void* b) {
  return strcmp((*(const td_json* const*)a)->key, (*(const td_json* const*)b)->key);
}

static void put_object(rpc_out* out, const td_json* object) {
  const td_json** members = calloc((size_t)object->count + 1, sizeof *members);
  uint32_t count = 0;
  if (members == NULL) {
    out->failed = true;
    return;
  }
  for (const td_json* member = object->child; member != NULL; member = member->next)
    members[count++] = member;
  if (count > 0) qsort(members, count, sizeof *members, by_key);
  put(out, "{");
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) put(out, ",");
    put_string(out, members[i]->key);
    put(out, ":");
    rpc_put_canonical(out, members[i]);
  }
  put(out, "}");
  free(members);
}

void rpc_put_canonical(rpc_out* out, const td_json* value) {
  char number[32];
  switch (value->type) {
    case TD_JSON_NULL: put(out, "null"); break;
    case TD_JSON_BOOL: put(out, value->integer != 0 ? "true" : "false"); break;
    case TD_JSON_INTEGER:
      snprintf(number, sizeof number, "%lld", (long long)value->integer);
      put(out, number);
      break;
    case TD_JSON_REAL: put(out, value->text); break;
    case TD_JSON_STRING: put_string(out, value->text); break;
    case TD_JSON_OBJECT: put_object(out, value); break;
    case TD_JSON_ARRAY:
      put(out, "[");
      for (const td_json* item = value->child; item != NULL; item = item->next) {
        if (item != value->child) put(out, ",");
        rpc_put_canonical(out, item);
      }
      put(out, "]");
      break;
  }
}
