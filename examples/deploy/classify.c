/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells what is in a picture, by a model that is loaded: an artifact, or a shared object.
 *
 *     treadle compile examples/digits/digits.onnx -o digits.tar
 *     treadle runtime build -o .
 *     cc -std=c11 -O2 -pthread -I. examples/deploy/classify.c libtreadle.a -ldl -o classify
 *     ./classify digits.tar examples/deploy/seven.pgm
 *
 * The model takes float32[1, channels, height, width] from 0 to 1 and gives a score for each class.
 *
 *     --threads N      use so many threads       --cpus 2,3   bind threads 0, 1, ... to these CPUs
 *     --profile        print the time of every kernel
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "treadle.h"

#define PROFILE_RUNS 100
#define MAX_CPUS 64

typedef struct {
  const char *model, *picture;
  int32_t threads, num_cpus, cpus[MAX_CPUS];
  int profile;
} options;

static int fail(const td_error* error) {
  fprintf(stderr, "error: %s\n", error->text);
  if (error->hint[0] != '\0') fprintf(stderr, "  hint  %s\n", error->hint);
  return 1;
}

/* Reads "2,3". */
static int read_cpus(const char* text, options* to) {
  while (to->num_cpus < MAX_CPUS) {
    char* end;
    long cpu = strtol(text, &end, 10);
    if (end == text || cpu < 0 || cpu > 1000000) return 0;
    to->cpus[to->num_cpus++] = (int32_t)cpu;
    if (*end == '\0') return 1;
    if (*end != ',') return 0;
    text = end + 1;
  }
  return 0;
}

static int read_options(int argc, char** argv, options* to) {
  memset(to, 0, sizeof *to);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--profile") == 0) to->profile = 1;
    else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) to->threads = atoi(argv[++i]);
    else if (strcmp(argv[i], "--cpus") == 0 && i + 1 < argc) {
      if (!read_cpus(argv[++i], to)) return 0;
    } else if (argv[i][0] == '-') return 0;
    else if (to->model == NULL) to->model = argv[i];
    else if (to->picture == NULL) to->picture = argv[i];
    else return 0;
  }
  return to->picture != NULL;
}

static int is_image(const td_tensor_info* info) {
  return info->ndim == 4 && strcmp(info->dtype, "float32") == 0 && info->shape[0] == 1 &&
         info->bytes > 0;
}

static void print_best(const td_tensor_info* info, const float* scores) {
  size_t best = 0, count = info->bytes / sizeof *scores;
  for (size_t i = 1; i < count; i++)
    if (scores[i] > scores[best]) best = i;
  printf("class %zu, score %.6f\n", best, scores[best]);
}

static int print_profile(td_executor* model, const void* const* inputs, td_error* error) {
  size_t count = (size_t)td_executor_num_instructions(model);
  uint64_t* columns = calloc(2 * count + 1, sizeof *columns);
  if (columns == NULL) return 1;
  int32_t code = TD_OK;
  td_profile_start(model);
  for (int i = 0; i < PROFILE_RUNS && code == TD_OK; i++) code = td_run(model, inputs, NULL, error);
  td_profile_stop(model);
  if (code == TD_OK) code = td_profile_read(model, columns, columns + count, error);
  for (size_t i = 0; i < count && code == TD_OK; i++) {
    td_instruction_info info;
    code = td_executor_instruction(model, (int32_t)i, &info, error);
    if (code != TD_OK || columns[count + i] == 0) continue;
    double us = (double)columns[i] / 1e3 / (double)columns[count + i];
    printf("%9.2f us  %s %s\n", us, info.op, info.kernel);
  }
  free(columns);
  return code == TD_OK ? 0 : fail(error);
}

static int classify(td_executor* model, const options* chosen) {
  td_error error;
  td_tensor_info input, output;
  image picture;
  if (td_executor_input(model, 0, &input, &error) != TD_OK) return fail(&error);
  if (td_executor_output(model, 0, &output, &error) != TD_OK) return fail(&error);
  if (td_executor_num_inputs(model) != 1 || !is_image(&input)) {
    fprintf(stderr, "error: the model does not take one picture, float32[1, channels, height, width]\n");
    return 1;
  }
  const char* wrong = image_read(chosen->picture, &picture);
  if (wrong != NULL) {
    fprintf(stderr, "error: %s: %s\n", chosen->picture, wrong);
    return 1;
  }
  float* pixels = td_alloc(input.bytes, &error); /* aligned: it is read where it is */
  if (pixels != NULL)
    image_fill(&picture, (long)input.shape[1], (long)input.shape[2], (long)input.shape[3], pixels);
  free(picture.samples);
  if (pixels == NULL) return fail(&error);
  const void* inputs[] = {pixels};
  int code = td_run(model, inputs, NULL, &error) == TD_OK ? 0 : fail(&error);
  if (code == 0) print_best(&output, td_executor_output_data(model, 0));
  if (code == 0 && chosen->profile) code = print_profile(model, inputs, &error);
  td_free(pixels);
  return code;
}

int main(int argc, char** argv) {
  options chosen;
  td_error error;
  td_executor* model;
  if (!read_options(argc, argv, &chosen)) {
    fprintf(stderr, "usage: %s MODEL PICTURE.pgm [--threads N] [--cpus 0,1] [--profile]\n", argv[0]);
    return 2;
  }
  if (chosen.num_cpus > 0 && td_set_cpus(chosen.cpus, chosen.num_cpus, &error) != TD_OK)
    return fail(&error);
  if (td_open(chosen.model, &model, &error) != TD_OK) return fail(&error);
  int code = chosen.threads == 0 ||
                     td_executor_set_num_threads(model, chosen.threads, &error) == TD_OK
                 ? classify(model, &chosen)
                 : fail(&error);
  td_close(model);
  return code;
}
