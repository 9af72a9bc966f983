#include "start.h"

#include <string.h>

#include "board.h"
#include "cpu.h"

#define PAINT 0xA5C35A3Cu
#define FAULT_MAGIC 0x4A57464Cu

extern uint32_t jw_data_begin[], jw_data_end[], jw_bss_begin[], jw_bss_end[];
extern const uint32_t jw_data_image[];

int main(void);

jw_fault jw_last_fault;

/* Not initialised at reset, so that it survives a restart. */
static struct {
    uint32_t magic;
    jw_fault fault;
} fault_record __attribute__((section(".noinit")));

/* --- reset ------------------------------------------------------------------------------------ */

static void paint_stack(void) {
    uint32_t *here;
    __asm volatile("mov %0, sp" : "=r"(here));
    for (uint32_t *word = jw_stack_begin; word < here; word++) {
        *word = PAINT;
    }
}

uint32_t jw_stack_unused(void) {
    const uint32_t *word = jw_stack_begin;
    while (word < jw_stack_end && *word == PAINT) {
        word++;
    }
    return (uint32_t)((word - jw_stack_begin) * (int)sizeof *word);
}

/* Calls no code that may use the floating-point unit before it is enabled. */
_Noreturn void jw_reset(void) {
#ifdef __ARM_FP
    SCB_CPACR |= 0xFu << 20;
    __asm volatile("dsb\n\tisb" : : : "memory");
#endif
    SCB_VTOR = (uint32_t)(uintptr_t)jw_flash_begin;
    paint_stack();
    memcpy(jw_data_begin, jw_data_image, (size_t)(jw_data_end - jw_data_begin) * 4);
    memset(jw_bss_begin, 0, (size_t)(jw_bss_end - jw_bss_begin) * 4);
    if (fault_record.magic == FAULT_MAGIC) {
        jw_last_fault = fault_record.fault;
    }
    fault_record.magic = 0;
    main();
    cpu_restart();
}

/* --- faults ----------------------------------------------------------------------------------- */

/* `frame` has the registers that the core pushed: r0 to r3, r12, lr, pc, psr. */
__attribute__((used)) _Noreturn void jw_record_fault(const uint32_t *frame) {
    uint32_t vector;
    __asm volatile("mrs %0, ipsr" : "=r"(vector));
    /* Reading through a stack pointer outside the RAM would fault again and lock up the core. */
    const bool readable = frame >= jw_data_begin && frame + 8 <= jw_stack_end;
    fault_record.fault = (jw_fault){
        .vector = vector,
        .pc = readable ? frame[6] : 0,
        .lr = readable ? frame[5] : 0,
        .status = SCB_CFSR,
    };
    fault_record.magic = FAULT_MAGIC;
    cpu_restart();
}

/* Records a fault with a fresh stack, since the stack pointer may have caused the fault. */
__attribute__((naked)) static void fault(void) {
    __asm volatile("mrs r0, msp\n\t"
                   "ldr r1, =jw_stack_end\n\t"
                   "mov sp, r1\n\t"
                   "ldr r1, =jw_record_fault\n\t"
                   "bx r1\n\t"
                   ".ltorg");
}

/* --- vectors ---------------------------------------------------------------------------------- */

typedef union {
    void *stack;
    board_vector *handler;
} vector;

__attribute__((section(".vectors"), used)) static const vector core_vectors[16] = {
    {.stack = jw_stack_end},
    {.handler = jw_reset},
    {.handler = fault}, /* NMI: not used */
    {.handler = fault}, /* hard fault */
    {.handler = fault}, /* memory management, bus and usage faults, if enabled */
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = fault},
    {.handler = board_systick_interrupt},
};
