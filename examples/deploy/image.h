/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of Netpbm's formats (PGM and PPM, text or binary) as inputs of a model; for C and C++. */
#ifndef TREADLE_EXAMPLES_IMAGE_H_
#define TREADLE_EXAMPLES_IMAGE_H_

#include <stdio.h>
#include <stdlib.h>

#define IMAGE_MAX_SIDE 16384L

typedef struct {
  long width, height, channels; /* 1: gray, 3: red, green, blue */
  float* samples;               /* [height][width][channels], from 0 to 1; release with free */
} image;

static int image_is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The next number in text, behind spaces and comments; -1 where there is none. */
static long image_number(FILE* file) {
  int c = getc(file);
  while (image_is_space(c) || c == '#') {
    while (c == '#' && (c = getc(file)) != '\n' && c != EOF) c = '#';
    c = c == EOF ? EOF : getc(file);
  }
  long value = c >= '0' && c <= '9' ? 0 : -1;
  for (; c >= '0' && c <= '9'; c = getc(file))
    value = value > 1000000 ? value : 10 * value + (c - '0');
  return value; /* the one character behind a number belongs to it */
}

/* The next sample of a picture, -1 where the file ends. */
static long image_sample(FILE* file, int is_text, long largest) {
  if (is_text) return image_number(file);
  int high = largest > 255 ? getc(file) : 0, low = getc(file);
  return high == EOF || low == EOF ? -1 : 256L * high + low;
}

static const char* image_read_open(FILE* file, image* read) {
  int mark = getc(file), kind = getc(file) - '0';
  if (mark != 'P' || (kind != 2 && kind != 3 && kind != 5 && kind != 6))
    return "it is no PGM or PPM file";
  read->width = image_number(file);
  read->height = image_number(file);
  read->channels = kind % 3 == 0 ? 3 : 1;
  long largest = image_number(file);
  if (read->width < 1 || read->height < 1 || read->width > IMAGE_MAX_SIDE ||
      read->height > IMAGE_MAX_SIDE || largest < 1 || largest > 65535)
    return "its header makes no sense";
  size_t count = (size_t)(read->width * read->height * read->channels);
  read->samples = (float*)malloc(count * sizeof(float));
  if (read->samples == NULL) return "there is not enough memory for it";
  for (size_t i = 0; i < count; i++) {
    long value = image_sample(file, kind < 4, largest);
    if (value < 0 || value > largest) return "it ends too early, or a sample is too large";
    read->samples[i] = (float)value / (float)largest;
  }
  return NULL;
}

/* Reads a picture. Returns NULL, or what is wrong with the file. */
static const char* image_read(const char* path, image* read) {
  read->samples = NULL;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return "it cannot be opened";
  const char* wrong = image_read_open(file, read);
  fclose(file);
  if (wrong != NULL) {
    free(read->samples);
    read->samples = NULL;
  }
  return wrong;
}

/* The sample of a pixel in channel `c` of `channels`: gray for each colour, or the mean of colours. */
static float image_channel(const image* from, const float* pixel, long c, long channels) {
  if (from->channels == channels) return pixel[c];
  if (from->channels == 1) return pixel[0];
  return (pixel[0] + pixel[1] + pixel[2]) / 3;
}

/* Fills `pixels`, float[channels][height][width]: each is the mean of what it covers. */
static void image_fill(const image* from, long channels, long height, long width, float* pixels) {
  for (long c = 0; c < channels; c++) {
    for (long y = 0; y < height; y++) {
      for (long x = 0; x < width; x++, pixels++) {
        long top = y * from->height / height, bottom = (y + 1) * from->height / height;
        long left = x * from->width / width, right = (x + 1) * from->width / width;
        if (bottom == top) bottom++;
        if (right == left) right++;
        float sum = 0;
        for (long i = top; i < bottom; i++)
          for (long j = left; j < right; j++)
            sum += image_channel(from, from->samples + (i * from->width + j) * from->channels, c,
                                 channels);
        *pixels = sum / (float)((bottom - top) * (right - left));
      }
    }
  }
}

#endif /* TREADLE_EXAMPLES_IMAGE_H_ */
