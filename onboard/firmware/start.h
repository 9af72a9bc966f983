/* Reset, fault handlers, and the stack. */
#ifndef JW_START_H
#define JW_START_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses from the linker script. */
extern unsigned char jw_arena_begin[], jw_arena_end[];
extern uint32_t jw_stack_begin[], jw_stack_end[];
extern const unsigned char jw_flash_begin[], jw_program_end[];

/* The fault that stopped the program before the last restart. */
typedef struct {
    uint32_t vector; /* number of the exception, 3 for a hard fault; 0: no fault */
    uint32_t pc, lr;
    uint32_t status; /* CFSR; 0 if the core has none */
} jw_fault;

/* The fault before this start. */
extern jw_fault jw_last_fault;

/* Bytes of the stack that were never used; 0 if it may have overflowed. */
uint32_t jw_stack_unused(void);

#endif
