/* SPDX-License-Identifier: Apache-2.0 */
/* How the files that read a plan read its fields; every function reports what is wrong. */
#ifndef TREADLE_READER_H_
#define TREADLE_READER_H_

#include "internal.h"

typedef struct {
  td_zone* zone;
  td_plan* plan;
  td_error* error;
  char where[64]; /* the part being read, for messages */
} td_reader;

/* These two return false, for the callers to return. */
bool td_read_no_memory(td_reader* r);
bool td_read_wrong(td_reader* r, const char* key, const char* wanted, const td_json* found);

const td_json* td_read_list(td_reader* r, const td_json* object, const char* key);
bool td_read_text(td_reader* r, const td_json* object, const char* key, const char** text);
bool td_read_optional_text(td_reader* r, const td_json* object, const char* key,
                           const char** text);
bool td_read_size(td_reader* r, const td_json* object, const char* key, size_t* size);
/* The number of a value (or of anything else there are `limit` of, called `what`). */
bool td_read_id(td_reader* r, const td_json* field, const char* key, uint32_t limit, uint32_t* id);
bool td_read_number_of(td_reader* r, const td_json* field, const char* key, const char* what,
                       uint32_t limit, uint32_t* id);
bool td_read_integers(td_reader* r, const td_json* object, const char* key, const int64_t** items,
                      uint32_t* count);

/* plan_sizes.c: sizes that a run decides (version 2). */
bool td_read_sizes(td_reader* r, const td_json* root);
bool td_read_checks(td_reader* r, const td_json* root);
/* An integer or {"size": k}. `negative` says whether a number below 0 is acceptable. */
bool td_read_extent(td_reader* r, const td_json* field, const char* key, bool negative,
                    td_extent* extent);
bool td_read_extents(td_reader* r, const td_json* object, const char* key,
                     const td_extent** extents, uint32_t* count);
/* Settles when every size and value is known; checks that no instruction needs one before. */
bool td_check_sizes(td_reader* r);

/* plan_blocks.c: branches and loops (version 2). */
bool td_read_plans(td_reader* r, const td_json* root);
bool td_read_block(td_reader* r, const td_json* object, td_instruction* instruction);
bool td_read_result(td_reader* r, const td_json* object, td_instruction* instruction);

/* plan.c */
bool td_read_body(td_reader* r, const td_json* root);
bool td_read_args(td_reader* r, const td_json* object, td_instruction* instruction);
bool td_read_dims(td_reader* r, const td_json* object, td_instruction* instruction);
bool td_is_writable(const td_plan* plan, uint32_t v);

/* random.c */
bool td_read_random(td_reader* r, const td_json* object, td_instruction* instruction);

/* indices.c */
bool td_read_indices(td_reader* r, const td_json* object, td_instruction* instruction);

/* plan_values.c */
bool td_read_values(td_reader* r, const td_json* root);

#endif /* TREADLE_READER_H_ */
