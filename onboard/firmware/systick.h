/* The counter of boards that have nothing better: SysTick, which runs at the processor's clock.
 * Not for chips where it stops while the core sleeps (nRF52), nor by itself where the core stands
 * still for longer than a period, a hundredth of a second (STM32F4, while flash is erased). */
#ifndef JW_SYSTICK_H
#define JW_SYSTICK_H

#include <stdint.h>

/* At `hz` of the processor. */
void systick_init(uint32_t hz);

uint64_t systick_counter(void);

void systick_sleep(uint64_t until);

void systick_interrupt(void);

#endif
