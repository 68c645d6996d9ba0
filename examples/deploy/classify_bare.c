/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells which digit is in a picture on a microcontroller (Arm Cortex-M), without an operating system,
 * without the native runtime and without an allocator: the model is C source, and all of its memory
 * is counted by the linker. Text goes to the debugger (semihosting), here to QEMU.
 *
 *     treadle compile examples/digits/digits.onnx --target "c -mtriple=thumbv7em-none-eabi \
 *        -mcpu=cortex-m4" -o digits.c
 *     arm-none-eabi-gcc -std=c11 -O2 -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 \
 *        -ffunction-sections -fdata-sections -Inative/include -I. -nostartfiles \
 *        -T examples/deploy/cortex_m.ld -Wl,--gc-sections examples/deploy/classify_bare.c digits.c \
 *        -o classify_bare
 *     qemu-system-arm -M mps2-an386 -nographic -semihosting-config enable=on,target=native \
 *        -kernel classify_bare
 */
#include <stdint.h>

#include "digits.h"

static _Alignas(64) unsigned char memory[DIGITS_MEMORY_BYTES];
static _Alignas(64) float pixels[8 * 8], scores[10];
_Static_assert(DIGITS_STACK_BYTES <= 1024, "cortex_m.ld has 2 KB of stack, half of it for arrays");

/* The picture seven.pgm, as a camera gives it: from 0 to 16. */
static const uint8_t PICTURE[8 * 8] = {
    0,  0,  4,  16, 8,  11, 7,  0,
    0,  0,  10, 16, 15, 16, 6,  0,
    0,  3,  16, 4,  6,  15, 0,  0,
    0,  3,  8,  0,  13, 8,  0,  0,
    0,  0,  6,  16, 16, 13, 6,  0,
    0,  0,  3,  14, 13, 9,  3,  0,
    0,  0,  0,  14, 6,  0,  0,  0,
    0,  0,  4,  15, 2,  0,  0,  0,
};

/* ---- the debugger ---------------------------------------------------------------------------- */

enum { SYS_WRITE0 = 0x04, SYS_EXIT = 0x18, STOPPED_WELL = 0x20026, STOPPED_ILL = 0x20023 };

static void ask_debugger(uint32_t operation, uintptr_t argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register uintptr_t r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print(const char* text) { ask_debugger(SYS_WRITE0, (uintptr_t)text); }

static void print_number(uint32_t number, int digits) {
  char text[11];
  char* at = text + sizeof text;
  for (*--at = '\0'; digits > 0 || number > 0; digits--, number /= 10)
    *--at = (char)('0' + number % 10);
  print(at);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int classify(void) {
  const void* inputs[] = {pixels};
  void* outputs[] = {scores};
  for (int i = 0; i < 8 * 8; i++) pixels[i] = (float)PICTURE[i] / 16;
  if (digits_run(memory, inputs, outputs) != TD_OK) {
    print("error: a kernel of the model fails\n");
    return 1;
  }
  int best = 0;
  for (int i = 1; i < 10; i++)
    if (scores[i] > scores[best]) best = i;
  uint32_t millionths = (uint32_t)(scores[best] * 1e6f + 0.5f);
  print("class ");
  print_number((uint32_t)best, 1);
  print(", score ");
  print_number(millionths / 1000000, 1);
  print(".");
  print_number(millionths % 1000000, 6);
  print("\n");
  return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* What the linker script says of memory. */
extern uint32_t data_begin[], data_end[], data_source[], bss_begin[], bss_end[], stack_end[];

void reset(void); /* where the linker script says that the program begins */

#define COPROCESSOR_ACCESS (*(volatile uint32_t*)0xe000ed88u)

void reset(void) {
#if defined(__ARM_FP)
  COPROCESSOR_ACCESS |= 0xfu << 20; /* floating-point instructions are allowed from here on */
  __asm__ volatile("dsb\n\tisb");
#endif
  for (uint32_t *to = data_begin, *from = data_source; to < data_end;) *to++ = *from++;
  for (uint32_t* to = bss_begin; to < bss_end;) *to++ = 0;
  int code = classify();
  ask_debugger(SYS_EXIT, code == 0 ? STOPPED_WELL : STOPPED_ILL);
  for (;;) continue;
}

static void fault(void) {
  print("error: the processor faults\n");
  ask_debugger(SYS_EXIT, STOPPED_ILL);
  for (;;) continue;
}

typedef union {
  uint32_t* stack;
  void (*handler)(void);
} vector;

/* What the processor reads first: the stack, and what it does on reset, NMI and faults. */
__attribute__((section(".vectors"), used)) static const vector VECTORS[16] = {
    {.stack = stack_end}, {.handler = reset}, {.handler = fault}, {.handler = fault},
    {.handler = fault},   {.handler = fault}, {.handler = fault},
};
