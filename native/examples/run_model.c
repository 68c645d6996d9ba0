/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a compiled model without Python.
 *
 *     cc -std=c11 -Inative/include native/examples/run_model.c -o run_model \
 *        treadle/_native/libtreadle.so -Wl,-rpath,$PWD/treadle/_native
 *     ./run_model model.tar data.bin prob.bin
 *
 * After the artifact come one file per input (raw elements), then as many files for outputs as
 * wanted. An input whose sizes are open comes with its shape: 2x7:ids.bin. For every output a line
 * with its type, a content hash and the first values is printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle.h"

#define SHOWN_VALUES 5
#define MAX_DIMS 16

typedef struct {
  void* data;
  int64_t shape[MAX_DIMS];
} input_buffer;

static int fail(const td_error* error) {
  fprintf(stderr, "error: %s\n", error->text);
  if (error->hint[0] != '\0') fprintf(stderr, "  hint  %s\n", error->hint);
  return 2;
}

static void print_type(FILE* to, const td_tensor_info* info) {
  fprintf(to, "%s[", info->dtype);
  for (int32_t i = 0; i < info->ndim; i++)
    fprintf(to, "%s%lld", i > 0 ? ", " : "", (long long)info->shape[i]);
  fprintf(to, "]");
}

/* Reads a file that must have exactly the size of the input. */
static int read_input(const char* path, const td_tensor_info* info, void* data) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "error: cannot open %s\n", path);
    return 2;
  }
  size_t bytes = fread(data, 1, info->bytes, file);
  int more = fgetc(file) != EOF;
  fclose(file);
  if (bytes == info->bytes && !more) return 0;
  fprintf(stderr, "error: %s does not have the %zu bytes of input \"%s\", ", path, info->bytes,
          info->name);
  print_type(stderr, info);
  fprintf(stderr, "\n");
  return 2;
}

static int write_output(const char* path, const void* data, size_t bytes) {
  FILE* file = fopen(path, "wb");
  int ok = file != NULL && fwrite(data, 1, bytes, file) == bytes;
  if (file != NULL) ok = fclose(file) == 0 && ok;
  if (ok) return 0;
  fprintf(stderr, "error: cannot write %s\n", path);
  return 2;
}

static double element(const td_tensor_info* info, const char* data, size_t i) {
  union { float f32; double f64; int64_t i64; int32_t i32; int8_t i8; uint8_t u8; } value;
#define AS(member) (memcpy(&value.member, data + i * sizeof value.member, sizeof value.member), \
                    (double)value.member)
  if (strcmp(info->dtype, "float32") == 0) return AS(f32);
  if (strcmp(info->dtype, "float64") == 0) return AS(f64);
  if (strcmp(info->dtype, "int64") == 0) return AS(i64);
  if (strcmp(info->dtype, "int32") == 0) return AS(i32);
  if (strcmp(info->dtype, "int8") == 0) return AS(i8);
  return AS(u8); /* uint8, bool; of other types the first bytes */
#undef AS
}

static size_t num_elements(const td_tensor_info* info) {
  size_t count = 1;
  for (int32_t i = 0; i < info->ndim; i++) count *= (size_t)info->shape[i];
  return count;
}

static void print_output(int32_t index, const td_tensor_info* info, const void* data) {
  char hash[17];
  td_hash64(data, info->bytes, hash);
  printf("output %d \"%s\" ", (int)index, info->name);
  print_type(stdout, info);
  printf(" hash %s first", hash);
  size_t count = num_elements(info);
  for (size_t i = 0; i < count && i < SHOWN_VALUES; i++)
    printf(" %.6g", element(info, data, i));
  printf("\n");
}

static int show_outputs(td_executor* model, char** paths, int num_paths) {
  td_error error;
  for (int32_t i = 0; i < td_executor_num_outputs(model); i++) {
    td_tensor_info info;
    if (td_executor_result(model, i, &info, &error) != TD_OK) return fail(&error);
    const void* data = td_executor_output_data(model, i);
    print_output(i, &info, data);
    if (i < num_paths && write_output(paths[i], data, info.bytes) != 0) return 2;
  }
  return 0;
}

/* Elements of one byte or more are named by their bits: "float32"; a "bool" takes a byte. */
static size_t item_size(const char* dtype) {
  size_t bits = 0;
  dtype += strcspn(dtype, "0123456789");
  for (; *dtype >= '0' && *dtype <= '9'; dtype++) bits = 10 * bits + (size_t)(*dtype - '0');
  return bits < 8 ? 1 : bits / 8;
}

/* Takes "2x7:" off the front of *path and fills in the open extents; checks the others. */
static int take_shape(char** path, td_tensor_info* info, int64_t* shape) {
  int is_open = 0;
  for (int32_t i = 0; i < info->ndim; i++) {
    shape[i] = info->shape[i];
    is_open |= shape[i] < 0;
  }
  char* colon = strchr(*path, ':');
  if (!is_open) return 0;
  char* at = *path;
  for (int32_t i = 0; colon != NULL && i < info->ndim; i++) {
    char* end = at;
    long long extent = strtoll(at, &end, 10);
    int is_last = i + 1 == info->ndim;
    if (end == at || extent < 0 || *end != (is_last ? ':' : 'x') ||
        (shape[i] >= 0 && shape[i] != extent)) {
      colon = NULL;
    } else {
      shape[i] = extent;
      at = end + 1;
    }
  }
  if (colon == NULL) {
    fprintf(stderr, "error: \"%s\" does not start with a shape for input \"%s\", ", *path,
            info->name);
    print_type(stderr, info);
    fprintf(stderr, "\n  hint  write it before the file, as in 2x7:ids.bin\n");
    return 2;
  }
  *path = at;
  info->shape = shape;
  info->bytes = item_size(info->dtype);
  for (int32_t i = 0; i < info->ndim; i++) {
    if (shape[i] > 0 && info->bytes > SIZE_MAX / 2 / (size_t)shape[i]) {
      fprintf(stderr, "error: the shape of input \"%s\" is too large\n", info->name);
      return 2;
    }
    info->bytes *= (size_t)shape[i];
  }
  return 0;
}

static int read_inputs(const td_executor* model, char** paths, input_buffer* inputs) {
  td_error error;
  for (int32_t i = 0; i < td_executor_num_inputs(model); i++) {
    td_tensor_info info;
    if (td_executor_input(model, i, &info, &error) != TD_OK) return fail(&error);
    if (info.ndim > MAX_DIMS) {
      fprintf(stderr, "error: input \"%s\" has %d dimensions\n", info.name, (int)info.ndim);
      return 2;
    }
    char* path = paths[i];
    if (take_shape(&path, &info, inputs[i].shape) != 0) return 2;
    inputs[i].data = td_alloc(info.bytes > 0 ? info.bytes : 1, &error);
    if (inputs[i].data == NULL) return fail(&error);
    if (read_input(path, &info, inputs[i].data) != 0) return 2;
  }
  return 0;
}

static int run_once(td_executor* model, const input_buffer* inputs) {
  int32_t count = td_executor_num_inputs(model);
  const void** pointers = calloc((size_t)count + 1, sizeof *pointers);
  td_tensor* tensors = calloc((size_t)count + 1, sizeof *tensors);
  td_error error;
  int32_t status = TD_MEMORY;
  error.text[0] = error.hint[0] = '\0';
  if (pointers != NULL && tensors != NULL) {
    for (int32_t i = 0; i < count; i++) {
      td_tensor_info info;
      (void)td_executor_input(model, i, &info, NULL);
      pointers[i] = inputs[i].data;
      tensors[i] = (td_tensor){inputs[i].data, inputs[i].shape, info.ndim};
    }
    status = td_executor_is_dynamic(model) ? td_run_shaped(model, tensors, NULL, &error)
                                           : td_run(model, pointers, NULL, &error);
  }
  free(tensors);
  free(pointers);
  return status == TD_OK ? 0 : fail(&error);
}

static int run(td_executor* model, char** paths, int num_paths) {
  int num_inputs = td_executor_num_inputs(model), num_outputs = td_executor_num_outputs(model);
  if (num_paths < num_inputs || num_paths > num_inputs + num_outputs) {
    fprintf(stderr, "error: the model has %d inputs and %d outputs; %d files are given\n",
            num_inputs, num_outputs, num_paths);
    return 2;
  }
  input_buffer* inputs = calloc((size_t)num_inputs + 1, sizeof *inputs);
  if (inputs == NULL) return 2;
  int code = read_inputs(model, paths, inputs);
  if (code == 0) code = run_once(model, inputs);
  if (code == 0) code = show_outputs(model, paths + num_inputs, num_paths - num_inputs);
  for (int i = 0; i < num_inputs; i++) td_free(inputs[i].data);
  free(inputs);
  return code;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s model.tar [SHAPE:]input.bin... [output.bin...]\n", argv[0]);
    return 2;
  }
  td_error error;
  td_executor* model;
  if (td_open(argv[1], &model, &error) != TD_OK) return fail(&error);
  int code = run(model, argv + 2, argc - 2);
  td_close(model);
  return code;
}
