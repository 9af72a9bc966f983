/* Access to a chip's registers and flash by address. Tests replace this file. */
#ifndef JW_REGISTERS_H
#define JW_REGISTERS_H

#include <stdint.h>

static inline uint32_t jw_register(uint32_t address) {
    return *(volatile uint32_t *)(uintptr_t)address;
}

static inline void jw_set_register(uint32_t address, uint32_t value) {
    *(volatile uint32_t *)(uintptr_t)address = value;
}

/* Memory-mapped flash, for reading. */
static inline const void *jw_mapped(uint32_t address) {
    return (const void *)(uintptr_t)address;
}

#endif
