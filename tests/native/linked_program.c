/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a model in it: MODEL is its name, MODEL_HEADER the header made with it, ARENA_BYTES
 * the memory that the header says it needs.
 *
 *     program INPUT.bin OUTPUT.bin
 *
 * It checks what td_open_static refuses, runs the model in its own and in the runtime's memory, and
 * writes the output. With -DCOUNT_ALLOCATIONS it is the program's allocator, and an allocation
 * while runs go on is an error.
 */
#include <stdio.h>
#include <string.h>

#include MODEL_HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define RUNS 5

static int armed = 0, allocations = 0;

#if !defined(COUNT_ALLOCATIONS)
#define COUNTS 0
#else
#define COUNTS 1
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Alignas(4096) unsigned char heap[64 << 20];
static atomic_size_t used = 0;

/* Memory is never reused; its size stands before it. */
static void* take(size_t alignment, size_t bytes) {
  if (armed) allocations++;
  if (alignment < 16) alignment = 16;
  size_t all = bytes + 2 * alignment, at = atomic_fetch_add(&used, (all + 4095) / 16 * 16);
  if (at + all > sizeof heap) return NULL;
  unsigned char* place = heap + (at + 16 + alignment - 1) / alignment * alignment;
  memcpy(place - 16, &bytes, sizeof bytes);
  return place;
}

void* malloc(size_t bytes) { return take(16, bytes); }
void free(void* memory) { (void)memory; }
void* calloc(size_t count, size_t bytes) { return take(16, count * bytes); /* zero from the start */ }
void* aligned_alloc(size_t alignment, size_t bytes) { return take(alignment, bytes); }
void* memalign(size_t alignment, size_t bytes) { return take(alignment, bytes); }

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = take(alignment, bytes);
  return *memory == NULL ? ENOMEM : 0;
}

void* realloc(void* memory, size_t bytes) {
  void* made = take(16, bytes);
  size_t before = 0;
  if (memory == NULL || made == NULL) return made;
  memcpy(&before, (unsigned char*)memory - 16, sizeof before);
  return memcpy(made, memory, before < bytes ? before : bytes);
}
#endif

static _Alignas(64) unsigned char memory[ARENA_BYTES + 1];
static unsigned char input[1 << 20], output[1 << 20], again[1 << 20];

static int failed(const char* what, const td_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->text, error->hint);
  return 1;
}

static int wrong(const char* what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

static int refused(int32_t code, int32_t wanted, const char* text, const td_error* error) {
  if (code == wanted && strstr(error->text, text) != NULL) return 0;
  fprintf(stderr, "wanted code %d and \"%s\", got %d: %s\n", (int)wanted, text, (int)code,
          error->text);
  return 1;
}

static int check_refusals(const td_linked* model) {
  td_executor* made;
  td_error error;
  td_linked other = *model;
  other.format = 77;
  int code = refused(td_open_linked(&other, &made, &error), TD_UNSUPPORTED, "format 77", &error);
  code |= refused(td_open_linked(NULL, &made, &error), TD_ARGUMENT, "no model", &error);
  code |= refused(td_open_static(model, NULL, sizeof memory, &made, &error), TD_ARGUMENT,
                  "no working memory", &error);
  code |= refused(td_open_static(model, memory, model->arena_bytes - 1, &made, &error), TD_MEMORY,
                  "bytes of working memory", &error);
  other = *model;
  other.num_kernels = 0;
  return code | refused(td_open_linked(&other, &made, &error), TD_PLAN, "not in the machine code",
                        &error);
}

/* Runs it again and again, with the output in the executor and in the program. */
static int run(td_executor* model, td_error* error) {
  const void* inputs[] = {input + 1}; /* nothing is aligned: it has to be copied */
  void* outputs[] = {output + 1};
  td_tensor_info info;
  int32_t code = td_executor_output(model, 0, &info, error);
  armed = 1;
  for (int i = 0; i < RUNS && code == TD_OK; i++) {
    code = td_run(model, inputs, outputs, error);
    if (code == TD_OK) code = td_run(model, inputs, NULL, error);
  }
  armed = 0;
  if (code != TD_OK) return failed("run", error);
  if (allocations != 0) return wrong("runs allocate memory");
  if (memcmp(td_executor_output_data(model, 0), output + 1, info.bytes) == 0) return 0;
  return wrong("two runs differ");
}

static int run_static(const td_linked* linked) {
  td_error error;
  td_executor *model, *fork;
  if (td_open_static(linked, memory + 1, linked->arena_bytes, &model, &error) != TD_OK)
    return failed("open", &error);
  int code = run(model, &error);
  if (td_executor_num_threads(model) != 1) code = wrong("not one thread");
  if (td_executor_set_num_threads(model, 2, &error) != TD_OK) return failed("threads", &error);
  code |= run(model, &error);
  if (td_executor_take_output(model, 0) != NULL) code = wrong("lent memory is given away");
  td_executor_give_output(model, 0, td_alloc(64, NULL), 64);
  if (td_executor_fork(model, &fork, &error) != TD_OK) return failed("fork", &error);
  td_close(model);
  memset(memory, 0xff, sizeof memory);
  const void* inputs[] = {input + 1};
  void* outputs[] = {again};
  if (td_run(fork, inputs, outputs, &error) != TD_OK) return failed("run the fork", &error);
  td_close(fork);
  return code;
}

static int run_linked(const td_linked* linked, size_t* bytes) {
  td_error error;
  td_executor* model;
  td_tensor_info info;
  armed = COUNTS;
  if (td_open_linked(linked, &model, &error) != TD_OK) return failed("open", &error);
  armed = 0;
  if (COUNTS && allocations == 0) return wrong("allocations are not counted");
  if (td_executor_output(model, 0, &info, &error) != TD_OK) return failed("output", &error);
  const void* inputs[] = {input};
  void* outputs[] = {output};
  memmove(input, input + 1, sizeof input - 1);
  if (td_run(model, inputs, outputs, &error) != TD_OK) return failed("run", &error);
  td_close(model);
  *bytes = info.bytes;
  if (memcmp(output, again, info.bytes) == 0) return 0;
  return wrong("the fork computes something else");
}

int main(int argc, char** argv) {
  const td_linked* model = JOIN(MODEL, _model)();
  size_t bytes = 0;
  FILE* file = argc == 3 ? fopen(argv[1], "rb") : NULL;
  if (file == NULL || fread(input + 1, 1, sizeof input - 1, file) == 0) return 2;
  fclose(file);
  int code = check_refusals(model) | run_static(model) | run_linked(model, &bytes);
  file = fopen(argv[2], "wb");
  if (file == NULL || fwrite(output, 1, bytes, file) != bytes) return 2;
  return fclose(file) == 0 ? code : 2;
}
