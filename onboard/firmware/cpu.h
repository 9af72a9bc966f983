/* Registers and instructions of all Cortex-M cores, including M0. */
#ifndef JW_CPU_H
#define JW_CPU_H

#include <stdint.h>

#define REG32(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define REG16(address) (*(volatile uint16_t *)(uintptr_t)(address))
#define REG8(address) (*(volatile uint8_t *)(uintptr_t)(address))

#define SCB_CPUID REG32(0xE000ED00)
#define SCB_ICSR REG32(0xE000ED04)
#define SCB_ICSR_SYSTICK_PENDING (1u << 26)
#define SCB_ICSR_SYSTICK_CLEAR (1u << 25)
#define SCB_VTOR REG32(0xE000ED08) /* M0 has none, and ignores writes */
#define SCB_AIRCR REG32(0xE000ED0C)
#define SCB_AIRCR_SYSTEM_RESET 0x05FA0004u
#define SCB_CFSR REG32(0xE000ED28) /* not on M0 and M0+, where it reads as zero */
#define SCB_CPACR REG32(0xE000ED88)

/* Mask interrupts; returns the state for cpu_restore. */
static inline uint32_t cpu_mask(void) {
    uint32_t primask;
    __asm volatile("mrs %0, primask\n\tcpsid i" : "=r"(primask) : : "memory");
    return primask;
}

static inline void cpu_restore(uint32_t primask) {
    __asm volatile("msr primask, %0\n\tisb" : : "r"(primask) : "memory");
}

/* Sleep until an interrupt is pending, also a masked one. Call it with interrupts masked, after
 * checking that there is a reason to wait. */
static inline void cpu_sleep(void) {
    __asm volatile("dsb\n\twfi" : : : "memory");
}

static inline void cpu_interrupt_enable(unsigned number) {
    REG32(0xE000E100 + 4 * (number / 32)) = 1u << number % 32;
}

static inline void cpu_interrupt_disable(unsigned number) {
    REG32(0xE000E180 + 4 * (number / 32)) = 1u << number % 32;
    __asm volatile("dsb\n\tisb" : : : "memory");
}

static inline _Noreturn void cpu_restart(void) {
    __asm volatile("dsb" : : : "memory");
    SCB_AIRCR = SCB_AIRCR_SYSTEM_RESET;
    for (;;) {
    }
}

#endif
