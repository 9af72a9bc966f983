/* From reset to main, and what becomes of faults. */
#ifndef JW_START_H
#define JW_START_H

#include <stdbool.h>
#include <stdint.h>

/* Where the linker script has put things. */
extern unsigned char jw_arena_begin[], jw_arena_end[];
extern uint32_t jw_stack_begin[], jw_stack_end[];
extern const unsigned char jw_flash_begin[], jw_program_end[];

/* What stopped the program before the last restart. */
typedef struct {
    uint32_t vector; /* 0: nothing; else the exception's number, 3 for a hard fault */
    uint32_t pc, lr;
    uint32_t status; /* CFSR, where the core has one */
} jw_fault;

extern jw_fault jw_last_fault;

/* Bytes of the stack that have never been used; 0 if it may have run over. */
uint32_t jw_stack_unused(void);

#endif
