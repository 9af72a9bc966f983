/* The default counter: SysTick, which runs at the processor's clock. It is not suitable for chips
 * where it stops while the core sleeps (nRF52), nor alone where the core stops for longer than a
 * period of 10 ms (STM32F4, while flash is erased). */
#ifndef JW_SYSTICK_H
#define JW_SYSTICK_H

#include <stdint.h>

/* Start the counter; `hz` is the processor's frequency. */
void systick_init(uint32_t hz);

/* Ticks so far. */
uint64_t systick_counter(void);

/* Sleep until the counter reaches this value. */
void systick_sleep(uint64_t until);

/* Sleep with the counter at a standstill, until another interrupt is pending, also a masked one. Call
 * it with interrupts masked. */
void systick_wait(void);

/* Interrupt handler. */
void systick_interrupt(void);

#endif
