/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a plan's JSON, checked as they are read. */
#include "reader.h"

bool td_read_no_memory(td_reader* r) {
  td_fail(r->error, TD_MEMORY, "not enough memory for the execution plan");
  return false;
}

bool td_read_wrong(td_reader* r, const char* key, const char* wanted, const td_json* found) {
  td_fail(r->error, TD_PLAN, "%s: \"%s\" must be %s but is %s", r->where, key, wanted,
          found == NULL ? "missing" : td_json_type_name(found->type));
  return false;
}

const td_json* td_read_list(td_reader* r, const td_json* object, const char* key) {
  const td_json* list = td_json_get(object, key);
  if (list != NULL && list->type == TD_JSON_ARRAY) return list;
  td_read_wrong(r, key, "a list", list);
  return NULL;
}

bool td_read_text(td_reader* r, const td_json* object, const char* key, const char** text) {
  const td_json* field = td_json_get(object, key);
  if (field == NULL || field->type != TD_JSON_STRING) return td_read_wrong(r, key, "a text", field);
  *text = td_zone_text(r->zone, field->text);
  return *text != NULL || td_read_no_memory(r);
}

/* Text that may be absent: "" then. */
bool td_read_optional_text(td_reader* r, const td_json* object, const char* key,
                              const char** text) {
  *text = "";
  return td_json_get(object, key) == NULL || td_read_text(r, object, key, text);
}

bool td_read_size(td_reader* r, const td_json* object, const char* key, size_t* size) {
  const td_json* field = td_json_get(object, key);
  if (field == NULL || field->type != TD_JSON_INTEGER || field->integer < 0 ||
      (uint64_t)field->integer > SIZE_MAX / 4)
    return td_read_wrong(r, key, "a size in bytes", field);
  *size = (size_t)field->integer;
  return true;
}

bool td_read_number_of(td_reader* r, const td_json* field, const char* key, const char* what,
                       uint32_t limit, uint32_t* id) {
  if (field == NULL || field->type != TD_JSON_INTEGER)
    return td_read_wrong(r, key, "an integer", field);
  if (field->integer < 0 || field->integer >= (int64_t)limit) {
    td_fail(r->error, TD_PLAN, "%s: %s %lld does not exist; the plan has %u %ss", r->where, what,
            (long long)field->integer, (unsigned)limit, what);
    return false;
  }
  *id = (uint32_t)field->integer;
  return true;
}

bool td_read_id(td_reader* r, const td_json* field, const char* key, uint32_t limit,
                uint32_t* id) {
  return td_read_number_of(r, field, key, "value", limit, id);
}

/* A list of integers that are not negative. */
bool td_read_integers(td_reader* r, const td_json* object, const char* key, const int64_t** items,
                         uint32_t* count) {
  const td_json* list = td_read_list(r, object, key);
  if (list == NULL) return false;
  int64_t* numbers = td_zone_alloc(r->zone, list->count, sizeof *numbers);
  if (numbers == NULL) return td_read_no_memory(r);
  *items = numbers;
  *count = list->count;
  for (const td_json* item = list->child; item != NULL; item = item->next) {
    if (item->type != TD_JSON_INTEGER || item->integer < 0)
      return td_read_wrong(r, key, "a list of integers from 0", item);
    *numbers++ = item->integer;
  }
  return true;
}
