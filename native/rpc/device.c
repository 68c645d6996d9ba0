/* SPDX-License-Identifier: Apache-2.0 */
/* What the device is. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "session.h"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#define TEXT_BYTES 4096

static void put_fact(rpc_out* out, const char* name, const char* text) {
  rpc_put_list(out, 2);
  rpc_put_text(out, name);
  rpc_put_text(out, text);
}

static void put_number(rpc_out* out, const char* name, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  put_fact(out, name, text);
}

/* Finds "name   : value" in a file of such lines. */
static bool find_line(FILE* file, const char* name, char* value, size_t size) {
  char line[512];
  rewind(file);
  while (fgets(line, sizeof line, file) != NULL) {
    char* colon = strchr(line, ':');
    if (colon == NULL) continue;
    char* end = colon;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t')) end--;
    if ((size_t)(end - line) != strlen(name) || strncmp(line, name, strlen(name)) != 0) continue;
    char* begin = colon + 1 + strspn(colon + 1, " \t");
    begin[strcspn(begin, "\r\n")] = '\0';
    snprintf(value, size, "%s", begin);
    return true;
  }
  return false;
}

/* What the system calls the processor. */
static void cpu_name(const char* machine, char* name, size_t size) {
  static const char* const LINES[] = {"model name", "Model", "Hardware", "uarch"};
  FILE* file = fopen("/proc/cpuinfo", "r");
  snprintf(name, size, "%s", machine);
  for (size_t i = 0; file != NULL && i < sizeof LINES / sizeof *LINES; i++)
    if (find_line(file, LINES[i], name, size)) break;
  if (file != NULL) fclose(file);
}

static void replace(char* text, char from, char to) {
  for (; *text != '\0'; text++)
    if (*text == from) *text = to;
}

/* Features that compilers choose code by, of those the runtime knows; the rest says nothing of
 * speed, or comes with these. */
static bool is_for_code(const char* feature) {
  static const char* const NAMES[] = {
      "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "f16c", "fma", "movbe", "bmi", "bmi2",
      "lzcnt", "avx2", "avx512f", "avx512dq", "avx512ifma", "avx512cd", "avx512bw", "avx512vl",
      "avx512vbmi", "avx512vbmi2", "gfni", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
      "avx512bf16", "avx512fp16", "avxvnni", "neon", "crc", "lse", "fullfp16", "rdm", "dotprod",
      "fp16fml", "i8mm", "bf16", "m", "a", "f", "d", "c", "v", "zba", "zbb", "zbs"};
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (strcmp(feature, NAMES[i]) == 0) return true;
  return false;
}

/* What to compile for: the machine's baseline and the features it has. Which CPU it is, and so what
 * its caches are, is the host's to say. */
static void target(const char* machine, const char* features, char* text, size_t size) {
  char all[TEXT_BYTES];
  size_t used = (size_t)snprintf(text, size, "llvm -mtriple=%s-linux-gnu", machine);
  bool is_first = true;
  snprintf(all, sizeof all, "%s", features);
  for (char* name = strtok(all, ","); name != NULL && used < size; name = strtok(NULL, ",")) {
    if (!is_for_code(name)) continue;
    used += (size_t)snprintf(text + used, size - used, "%s+%s", is_first ? " -mattr=" : ",", name);
    is_first = false;
  }
  if (used < size) snprintf(text + used, size - used, " -num-cores=%d", td_usable_cpus(NULL));
}

bool rpc_device_info(rpc_session* session, rpc_call* call) {
  char text[TEXT_BYTES];
  struct utsname system;
  (void)session;
  if (!rpc_args_end(&call->args)) return false;
  if (uname(&system) < 0) return rpc_fail(call->error, "the system does not say what it is");
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, 9);
  cpu_name(system.machine, text, sizeof text);
  put_fact(call->out, "cpu", text);
  put_fact(call->out, "machine", system.machine);
  snprintf(text, sizeof text, "%s", td_cpu_features());
  replace(text, ',', ' ');
  put_fact(call->out, "features", text);
  put_number(call->out, "cores", (uint64_t)td_usable_cpus(NULL));
  put_number(call->out, "memory_bytes", td_physical_memory());
  snprintf(text, sizeof text, "%s %s", system.sysname, system.release);
  put_fact(call->out, "system", text);
#if defined(__GLIBC__)
  snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
  put_fact(call->out, "libc", text);
#else
  put_fact(call->out, "libc", "");
#endif
  put_fact(call->out, "runtime", td_version());
  target(system.machine, td_cpu_features(), text, sizeof text);
  put_fact(call->out, "target", text);
  return true;
}

bool rpc_device_threads(rpc_session* session, rpc_call* call) {
  td_error failed;
  int32_t threads = (int32_t)rpc_take_int(&call->args, 1, TD_MAX_THREADS);
  (void)session;
  if (!rpc_args_end(&call->args)) return false;
  if (td_set_num_threads(threads, &failed) != TD_OK)
    return rpc_fail_td(call->error, &failed, "");
  rpc_put_list(call->out, 0);
  return true;
}
