/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells which digit is in a picture, by a model that is part of the program: it loads nothing, and
 * asks for no memory once the model is open.
 *
 *     treadle compile examples/digits/digits.onnx -o digits.o     (or digits.c, here and below)
 *     treadle runtime build -o .
 *     cc -std=c11 -O2 -pthread -static -I. examples/deploy/classify_static.c digits.o libtreadle.a -lm \
 *        -o classify_static
 *     ./classify_static examples/deploy/seven.pgm
 */
#include <stdio.h>

#include "digits.h"
#include "image.h"

static _Alignas(64) unsigned char memory[DIGITS_ARENA_BYTES];
static _Alignas(64) float pixels[8 * 8], scores[10];

static int fail(const td_error* error) {
  fprintf(stderr, "error: %s\n", error->text);
  if (error->hint[0] != '\0') fprintf(stderr, "  hint  %s\n", error->hint);
  return 1;
}

int main(int argc, char** argv) {
  td_error error;
  td_executor* model;
  image picture;
  if (argc != 2) {
    fprintf(stderr, "usage: %s PICTURE.pgm\n", argv[0]);
    return 2;
  }
  const char* wrong = image_read(argv[1], &picture);
  if (wrong != NULL) {
    fprintf(stderr, "error: %s: %s\n", argv[1], wrong);
    return 1;
  }
  image_fill(&picture, 1, 8, 8, pixels);
  free(picture.samples);
  if (td_open_static(digits_model(), memory, sizeof memory, &model, &error) != TD_OK)
    return fail(&error);

  const void* inputs[] = {pixels};
  void* outputs[] = {scores};
  int code = td_run(model, inputs, outputs, &error) == TD_OK ? 0 : fail(&error);
  int best = 0;
  for (int i = 1; i < 10; i++)
    if (scores[i] > scores[best]) best = i;
  if (code == 0) printf("class %d, score %.6f\n", best, scores[best]);
  td_close(model);
  return code;
}
