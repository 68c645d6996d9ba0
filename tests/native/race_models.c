/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that open one artifact, fork its executors, run and close them at the same time, for the
 * thread sanitizer: weights are shared, so are the pool and the memory of the machine's facts.
 *
 *     race_models MODEL.tar
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle.h"

#define CALLERS 4
#define ROUNDS 6

static const char* path;
static td_executor* first; /* that all callers fork */

/* Runs a model and compares what it says with what was said before, or keeps that. */
static const char* run(td_executor* model, unsigned char** wanted) {
  td_error error;
  td_tensor_info input, output;
  if (td_executor_input(model, 0, &input, &error) != TD_OK) return "no input";
  if (td_executor_output(model, 0, &output, &error) != TD_OK) return "no output";
  float* given = td_alloc(input.bytes, &error);
  if (given == NULL) return "no memory";
  for (size_t i = 0; i < input.bytes / sizeof *given; i++) given[i] = (float)(i % 16) / 16;
  const void* inputs[] = {given};
  int32_t status = td_run(model, inputs, NULL, &error);
  td_free(given);
  if (status != TD_OK) return "a run fails";
  if (*wanted == NULL) {
    *wanted = malloc(output.bytes);
    if (*wanted == NULL) return "no memory";
    memcpy(*wanted, td_executor_output_data(model, 0), output.bytes);
  }
  return memcmp(*wanted, td_executor_output_data(model, 0), output.bytes) ? "it differs" : NULL;
}

static void* call(void* unused) {
  td_error error;
  unsigned char* wanted = NULL;
  const char* problem = NULL;
  (void)unused;
  for (int i = 0; i < ROUNDS && problem == NULL; i++) {
    td_executor *opened = NULL, *forked = NULL;
    if (td_open(path, &opened, &error) != TD_OK) return "an artifact does not open";
    if (td_executor_fork(first, &forked, &error) != TD_OK) return "an executor does not fork";
    problem = run(opened, &wanted);
    if (problem == NULL) problem = run(forked, &wanted);
    td_close(opened);
    td_close(forked);
  }
  free(wanted);
  return (void*)problem;
}

int main(int count, char** words) {
  pthread_t callers[CALLERS];
  td_error error;
  int failed = 0;
  if (count != 2) return 2;
  path = words[1];
  if (td_open(path, &first, &error) != TD_OK) return puts(error.text) > 0;
  for (int i = 0; i < CALLERS; i++)
    if (pthread_create(&callers[i], NULL, call, NULL) != 0) return 2;
  for (int i = 0; i < CALLERS; i++) {
    void* said;
    pthread_join(callers[i], &said);
    if (said != NULL) failed = puts((const char*)said) > 0;
  }
  td_close(first);
  return failed;
}
