/* SPDX-License-Identifier: Apache-2.0 */
/* CPU features under LLVM's names, asked of the CPU and the system. */
#include <pthread.h>
#include <string.h>

#include "internal.h"

#if defined(__x86_64__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
/* State the system must save for the feature to be usable: XCR0 bits. */
enum { NONE = 0, AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 };

typedef struct {
  const char* name;
  uint32_t leaf, subleaf;
  uint8_t reg, bit;
  uint32_t state;
} feature;

static const feature FEATURES[] = {
    {"64bit", 0x80000001, 0, EDX, 29, NONE},
    {"cx8", 1, 0, EDX, 8, NONE},
    {"cmov", 1, 0, EDX, 15, NONE},
    {"mmx", 1, 0, EDX, 23, NONE},
    {"fxsr", 1, 0, EDX, 24, NONE},
    {"sse", 1, 0, EDX, 25, NONE},
    {"sse2", 1, 0, EDX, 26, NONE},
    {"sse3", 1, 0, ECX, 0, NONE},
    {"pclmul", 1, 0, ECX, 1, NONE},
    {"ssse3", 1, 0, ECX, 9, NONE},
    {"fma", 1, 0, ECX, 12, AVX},
    {"cx16", 1, 0, ECX, 13, NONE},
    {"sse4.1", 1, 0, ECX, 19, NONE},
    {"sse4.2", 1, 0, ECX, 20, NONE},
    {"crc32", 1, 0, ECX, 20, NONE},
    {"movbe", 1, 0, ECX, 22, NONE},
    {"popcnt", 1, 0, ECX, 23, NONE},
    {"aes", 1, 0, ECX, 25, NONE},
    {"xsave", 1, 0, ECX, 27, NONE},
    {"avx", 1, 0, ECX, 28, AVX},
    {"f16c", 1, 0, ECX, 29, AVX},
    {"rdrnd", 1, 0, ECX, 30, NONE},
    {"fsgsbase", 7, 0, EBX, 0, NONE},
    {"sgx", 7, 0, EBX, 2, NONE},
    {"bmi", 7, 0, EBX, 3, NONE},
    {"avx2", 7, 0, EBX, 5, AVX},
    {"bmi2", 7, 0, EBX, 8, NONE},
    {"invpcid", 7, 0, EBX, 10, NONE},
    {"rtm", 7, 0, EBX, 11, NONE},
    {"avx512f", 7, 0, EBX, 16, AVX512},
    {"avx512dq", 7, 0, EBX, 17, AVX512},
    {"rdseed", 7, 0, EBX, 18, NONE},
    {"adx", 7, 0, EBX, 19, NONE},
    {"avx512ifma", 7, 0, EBX, 21, AVX512},
    {"clflushopt", 7, 0, EBX, 23, NONE},
    {"clwb", 7, 0, EBX, 24, NONE},
    {"avx512cd", 7, 0, EBX, 28, AVX512},
    {"sha", 7, 0, EBX, 29, NONE},
    {"avx512bw", 7, 0, EBX, 30, AVX512},
    {"avx512vl", 7, 0, EBX, 31, AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512},
    {"pku", 7, 0, ECX, 4, NONE},
    {"waitpkg", 7, 0, ECX, 5, NONE},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512},
    {"shstk", 7, 0, ECX, 7, NONE},
    {"gfni", 7, 0, ECX, 8, NONE},
    {"vaes", 7, 0, ECX, 9, AVX},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX},
    {"avx512vnni", 7, 0, ECX, 11, AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512},
    {"rdpid", 7, 0, ECX, 22, NONE},
    {"cldemote", 7, 0, ECX, 25, NONE},
    {"movdiri", 7, 0, ECX, 27, NONE},
    {"movdir64b", 7, 0, ECX, 28, NONE},
    {"enqcmd", 7, 0, ECX, 29, NONE},
    {"uintr", 7, 0, EDX, 5, NONE},
    {"avx512vp2intersect", 7, 0, EDX, 8, AVX512},
    {"serialize", 7, 0, EDX, 14, NONE},
    {"tsxldtrk", 7, 0, EDX, 16, NONE},
    {"pconfig", 7, 0, EDX, 18, NONE},
    {"amx-bf16", 7, 0, EDX, 22, AMX},
    {"avx512fp16", 7, 0, EDX, 23, AVX512},
    {"amx-tile", 7, 0, EDX, 24, AMX},
    {"amx-int8", 7, 0, EDX, 25, AMX},
    {"sha512", 7, 1, EAX, 0, AVX},
    {"sm3", 7, 1, EAX, 1, AVX},
    {"sm4", 7, 1, EAX, 2, AVX},
    {"raoint", 7, 1, EAX, 3, NONE},
    {"avxvnni", 7, 1, EAX, 4, AVX},
    {"avx512bf16", 7, 1, EAX, 5, AVX512},
    {"cmpccxadd", 7, 1, EAX, 7, NONE},
    {"amx-fp16", 7, 1, EAX, 21, AMX},
    {"hreset", 7, 1, EAX, 22, NONE},
    {"avxifma", 7, 1, EAX, 23, AVX},
    {"avxvnniint8", 7, 1, EDX, 4, AVX},
    {"avxneconvert", 7, 1, EDX, 5, AVX},
    {"amx-complex", 7, 1, EDX, 8, AMX},
    {"avxvnniint16", 7, 1, EDX, 10, AVX},
    {"prefetchi", 7, 1, EDX, 14, NONE},
    {"usermsr", 7, 1, EDX, 15, NONE},
    {"avx10.1", 7, 1, EDX, 19, AVX512},
    {"xsaveopt", 0xd, 1, EAX, 0, NONE},
    {"xsavec", 0xd, 1, EAX, 1, NONE},
    {"xsaves", 0xd, 1, EAX, 3, NONE},
    {"ptwrite", 0x14, 0, EBX, 4, NONE},
    {"sahf", 0x80000001, 0, ECX, 0, NONE},
    {"lzcnt", 0x80000001, 0, ECX, 5, NONE},
    {"sse4a", 0x80000001, 0, ECX, 6, NONE},
    {"prfchw", 0x80000001, 0, ECX, 8, NONE},
    {"xop", 0x80000001, 0, ECX, 11, AVX},
    {"lwp", 0x80000001, 0, ECX, 15, NONE},
    {"fma4", 0x80000001, 0, ECX, 16, AVX},
    {"tbm", 0x80000001, 0, ECX, 21, NONE},
    {"mwaitx", 0x80000001, 0, ECX, 29, NONE},
    {"clzero", 0x80000008, 0, EBX, 0, NONE},
    {"rdpru", 0x80000008, 0, EBX, 4, NONE},
    {"wbnoinvd", 0x80000008, 0, EBX, 9, NONE},
};

static uint64_t saved_state(void) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0) return 0;
  __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return ((uint64_t)d << 32) | a;
}

static bool has(const feature* f) {
  uint32_t regs[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(f->leaf, f->subleaf, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]))
    return false;
  return (regs[f->reg] >> f->bit & 1) != 0 && (saved_state() & f->state) == f->state;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

typedef struct {
  const char* name;
  int type; /* AT_HWCAP or AT_HWCAP2 */
  int bit;
} feature;

/* An architecture version stands for one feature it brought that the system reports. */
static const feature FEATURES[] = {
    {"fp-armv8", AT_HWCAP, 0},   {"neon", AT_HWCAP, 1},        {"aes", AT_HWCAP, 3},
    {"pmull", AT_HWCAP, 4},      {"sha2", AT_HWCAP, 6},        {"crc", AT_HWCAP, 7},
    {"lse", AT_HWCAP, 8},        {"fullfp16", AT_HWCAP, 10},   {"rdm", AT_HWCAP, 12},
    {"jsconv", AT_HWCAP, 13},    {"complxnum", AT_HWCAP, 14},  {"rcpc", AT_HWCAP, 15},
    {"ccpp", AT_HWCAP, 16},      {"sha3", AT_HWCAP, 17},       {"sm4", AT_HWCAP, 19},
    {"dotprod", AT_HWCAP, 20},   {"sve", AT_HWCAP, 22},        {"fp16fml", AT_HWCAP, 23},
    {"dit", AT_HWCAP, 24},       {"flagm", AT_HWCAP, 27},      {"ssbs", AT_HWCAP, 28},
    {"sb", AT_HWCAP, 29},        {"pauth", AT_HWCAP, 30},      {"ccdp", AT_HWCAP2, 0},
    {"sve2", AT_HWCAP2, 1},      {"sve2-aes", AT_HWCAP2, 2},   {"sve2-bitperm", AT_HWCAP2, 4},
    {"sve2-sha3", AT_HWCAP2, 5}, {"sve2-sm4", AT_HWCAP2, 6},   {"altnzcv", AT_HWCAP2, 7},
    {"fptoint", AT_HWCAP2, 8},   {"f32mm", AT_HWCAP2, 10},     {"f64mm", AT_HWCAP2, 11},
    {"i8mm", AT_HWCAP2, 13},     {"bf16", AT_HWCAP2, 14},      {"rand", AT_HWCAP2, 16},
    {"bti", AT_HWCAP2, 17},      {"mte", AT_HWCAP2, 18},       {"sme", AT_HWCAP2, 23},
    {"wfxt", AT_HWCAP2, 31},     {"cssc", AT_HWCAP2, 34},      {"sve2p1", AT_HWCAP2, 36},
    {"sme2", AT_HWCAP2, 37},     {"mops", AT_HWCAP2, 43},      {"v8a", AT_HWCAP, 1},
    {"v8.1a", AT_HWCAP, 12},     {"v8.2a", AT_HWCAP, 16},      {"v8.3a", AT_HWCAP, 15},
    {"v8.4a", AT_HWCAP, 27},     {"v8.5a", AT_HWCAP, 29},      {"v8.6a", AT_HWCAP2, 13},
    {"v8.7a", AT_HWCAP2, 31},    {"v8.8a", AT_HWCAP2, 43},     {"v8.9a", AT_HWCAP2, 34},
    {"v9a", AT_HWCAP2, 1},       {"v9.1a", AT_HWCAP2, 13},     {"v9.2a", AT_HWCAP2, 31},
    {"v9.3a", AT_HWCAP2, 43},    {"v9.4a", AT_HWCAP2, 36},
};

static bool has(const feature* f) {
  return ((uint64_t)getauxval((unsigned long)f->type) >> f->bit & 1) != 0;
}

#elif defined(__riscv) && __riscv_xlen == 64 && defined(__linux__)

#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How the system tells of a feature: AT_HWCAP has a bit for each letter; riscv_hwprobe (since Linux
 * 6.4) has bits for the others and for vectors as they were ratified; a vector's bits are asked of
 * the CPU. */
typedef enum { LETTER, PROBED, VECTOR_BITS } kind;

typedef struct {
  const char* name;
  kind kind;
  uint64_t bits; /* which bits must be set; for VECTOR_BITS: at least how many */
} feature;

#define HWCAP(letter) (1ull << ((letter) - 'a'))
enum { PROBE_CALL = 258, PROBE_EXTENSIONS = 4 };
#define PROBE_V (1ull << 2)
#define PROBE_ZBA (1ull << 3)
#define PROBE_ZBB (1ull << 4)
#define PROBE_ZBS (1ull << 5)

static const feature FEATURES[] = {
    {"m", LETTER, HWCAP('m')},
    {"a", LETTER, HWCAP('a')},
    {"f", LETTER, HWCAP('f')},
    {"d", LETTER, HWCAP('d')},
    {"c", LETTER, HWCAP('c')},
    {"zicsr", LETTER, HWCAP('f')}, /* f has its registers of control there */
    {"zba", PROBED, PROBE_ZBA},
    {"zbb", PROBED, PROBE_ZBB},
    {"zbs", PROBED, PROBE_ZBS},
    {"b", PROBED, PROBE_ZBA | PROBE_ZBB | PROBE_ZBS},
    {"zfh", PROBED, 1ull << 27},
    {"zfhmin", PROBED, 1ull << 28},
    {"v", PROBED, PROBE_V},
    {"zve64d", PROBED, PROBE_V},
    {"zvfh", PROBED, 1ull << 30},
    {"zvfhmin", PROBED, 1ull << 31},
    {"zvl128b", VECTOR_BITS, 128},
    {"zvl256b", VECTOR_BITS, 256},
    {"zvl512b", VECTOR_BITS, 512},
};

/* The extensions every CPU of the system has; none where the system cannot tell. */
static uint64_t probed(void) {
  struct {
    int64_t key;
    uint64_t value;
  } pair = {PROBE_EXTENSIONS, 0};
  if (syscall(PROBE_CALL, &pair, 1ul, 0ul, NULL, 0ul) != 0) return 0;
  return pair.key == PROBE_EXTENSIONS ? pair.value : 0;
}

static uint64_t vector_bits(void) {
  uint64_t bytes;
  if ((probed() & PROBE_V) == 0) return 0;
  __asm__ __volatile__("csrr %0, 0xc22" : "=r"(bytes)); /* vlenb */
  return 8 * bytes;
}

static bool has(const feature* f) {
  if (f->kind == VECTOR_BITS) return vector_bits() >= f->bits;
  return ((f->kind == LETTER ? getauxval(AT_HWCAP) : probed()) & f->bits) == f->bits;
}

#else

typedef struct {
  const char* name;
} feature;

#if defined(__aarch64__)
static const feature FEATURES[] = {{"fp-armv8"}, {"neon"}}; /* part of the base architecture */
static bool has(const feature* f) { return f != NULL; }
#else
static const feature FEATURES[] = {{""}};
static bool has(const feature* f) { return f == NULL; }
#endif

#endif

#define NUM_FEATURES (sizeof FEATURES / sizeof FEATURES[0])

/* Asked once: under a hypervisor the question takes microseconds. */
static bool answers[NUM_FEATURES];
static char feature_list[NUM_FEATURES * 20 + 1];

static void ask(void) {
  char* at = feature_list;
  for (size_t i = 0; i < NUM_FEATURES; i++) {
    answers[i] = has(&FEATURES[i]);
    if (!answers[i]) continue;
    size_t bytes = strlen(FEATURES[i].name);
    if (at != feature_list) *at++ = ',';
    memcpy(at, FEATURES[i].name, bytes);
    at += bytes;
  }
  *at = '\0';
}

static void ask_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, ask);
}

int32_t td_cpu_has(const char* name) {
  ask_once();
  for (size_t i = 0; i < NUM_FEATURES; i++)
    if (strcmp(FEATURES[i].name, name) == 0) return answers[i] ? 1 : 0;
  return -1;
}

const char* td_cpu_features(void) {
  ask_once();
  return feature_list;
}

/* Appends a name to a list in a buffer; drops what does not fit. */
static void append(char* list, size_t size, const char* name) {
  size_t used = strlen(list), bytes = strlen(name);
  if (used + bytes + 3 > size) return;
  if (used > 0) {
    memcpy(list + used, ", ", 2);
    used += 2;
  }
  memcpy(list + used, name, bytes + 1);
}

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE "riscv64"
#else
#define ARCHITECTURE "" /* unknown: not compared */
#endif

/* True if the first word of a triple is this machine's architecture, under one of its names. */
static bool is_own_architecture(const char* triple) {
  static const char* const OTHER_NAMES[][2] = {{"amd64", "x86_64"}, {"arm64", "aarch64"}};
  size_t bytes = strcspn(triple, "-");
  const char* own = ARCHITECTURE;
  if (bytes == 0 || *own == '\0') return true; /* not said, not known */
  if (strlen(own) == bytes && strncmp(triple, own, bytes) == 0) return true;
  for (size_t i = 0; i < sizeof OTHER_NAMES / sizeof OTHER_NAMES[0]; i++) {
    const char* name = OTHER_NAMES[i][0];
    if (strlen(name) == bytes && strncmp(triple, name, bytes) == 0)
      return strcmp(OTHER_NAMES[i][1], own) == 0;
  }
  return false;
}

static int32_t check_features(const char* const* features, uint32_t count, td_error* error) {
  char missing[400] = "", unknown[400] = "";
  for (uint32_t i = 0; i < count; i++) {
    int32_t answer = td_cpu_has(features[i]);
    if (answer == 0) append(missing, sizeof missing, features[i]);
    if (answer < 0) append(unknown, sizeof unknown, features[i]);
  }
  if (missing[0] != '\0')
    return td_hint(error,
                   td_fail(error, TD_UNSUPPORTED, "the model is compiled for CPU features this "
                           "machine lacks: %s", missing),
                   "compile it for this machine, or for a plainer one with -mcpu");
  if (unknown[0] != '\0')
    return td_hint(error,
                   td_fail(error, TD_UNSUPPORTED, "the model needs CPU features this runtime "
                           "cannot check: %s", unknown),
                   "use a newer runtime, or compile without these features");
  return TD_OK;
}

int32_t td_check_machine(const td_plan* plan, td_error* error) {
  if (plan->triple == NULL || is_own_architecture(plan->triple))
    return check_features(plan->features, plan->num_features, error);
  return td_hint(error,
                 td_fail(error, TD_UNSUPPORTED, "the model is made for %.100s, this machine is %s",
                         plan->triple, ARCHITECTURE),
                 "compile the model for this machine, or load it on one that it is made for");
}
