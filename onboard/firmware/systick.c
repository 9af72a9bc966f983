/* SysTick counts down from RELOAD to 0 and begins again. Here a period begins with the step from 1
 * to 0, when the interrupt becomes pending; the reload follows one tick later.
 *
 *     value     1    0   n-1  n-2  ...  1    0
 *     elapsed  n-1   0    1    2   ... n-1   0
 *
 * A new RELOAD takes effect with the next period. Periods may therefore differ without losing
 * ticks, which lets sleep end at an exact tick.
 */
#include "systick.h"

#include <stdbool.h>

#include "cpu.h"

#define CONTROL REG32(0xE000E010)
#define RELOAD REG32(0xE000E014)
#define VALUE REG32(0xE000E018)
#define ENABLE 1u
#define ENABLE_WITH_INTERRUPT_FROM_CORE_CLOCK (6u | ENABLE)

#define LONGEST (1u << 24)
#define SHORTEST 4096u /* shortest period for sleep; emulators cannot do much shorter ones */
#define MARGIN 256u    /* ticks before a period's end in which RELOAD is not changed */

static uint64_t begun;     /* ticks before the running period */
static uint32_t period;    /* its length */
static uint32_t following; /* the length of later periods */
static uint32_t usual;
static bool moves;

void systick_init(uint32_t hz) {
    usual = hz / 100 < LONGEST ? hz / 100 : LONGEST;
    begun = 0;
    period = following = usual;
    RELOAD = usual - 1;
    VALUE = 0;
    CONTROL = ENABLE_WITH_INTERRUPT_FROM_CORE_CLOCK;
    /* A chip needs one tick; an emulator on a busy computer may need some milliseconds. */
    for (uint32_t tries = 0; tries < 5000000 && !moves; tries++) {
        moves = VALUE != 0;
    }
}

void systick_interrupt(void) {
    begun += period;
    period = following;
}

/* Ticks until the end of the period. At 0 the interrupt is already pending, but emulators show 0
 * slightly earlier: wait for the next tick. */
static uint32_t remaining(void) {
    uint32_t value;
    do {
        value = VALUE;
    } while (value == 0);
    return value;
}

uint64_t systick_counter(void) {
    if (!moves) {
        return 0;
    }
    const uint32_t masked = cpu_mask();
    uint32_t left = remaining(), length = period;
    uint64_t before = begun;
    if (SCB_ICSR & SCB_ICSR_SYSTICK_PENDING) {
        left = remaining();
        before += length;
        length = following;
    }
    cpu_restore(masked);
    return before + (length - left);
}

/* Set the length of later periods; call it with interrupts masked. */
static void set_following(uint32_t length) {
    if (length != following && remaining() > MARGIN && !(SCB_ICSR & SCB_ICSR_SYSTICK_PENDING)) {
        RELOAD = length - 1;
        following = length;
    }
}

/* Length of a period that ends after `distance`, or leaves enough of it for another period. */
static uint32_t period_towards(uint64_t distance) {
    if (distance < SHORTEST) {
        return usual;
    }
    if (distance <= LONGEST) {
        return (uint32_t)distance;
    }
    return distance < LONGEST + SHORTEST ? LONGEST - SHORTEST : LONGEST;
}

/* A new period begins afterwards, so that what follows meets as many interrupts each time. */
void systick_wait(void) {
    begun = systick_counter();
    CONTROL = ENABLE_WITH_INTERRUPT_FROM_CORE_CLOCK & ~ENABLE;
    SCB_ICSR = SCB_ICSR_SYSTICK_CLEAR;
    period = following = usual;
    RELOAD = usual - 1;
    VALUE = 0;
    cpu_sleep();
    CONTROL = ENABLE_WITH_INTERRUPT_FROM_CORE_CLOCK;
}

void systick_sleep(uint64_t until) {
    for (bool waiting = moves; waiting;) {
        const uint32_t masked = cpu_mask();
        const uint64_t end = begun + period;
        waiting = until >= end;
        if (waiting && !(SCB_ICSR & SCB_ICSR_SYSTICK_PENDING)) {
            set_following(period_towards(until - end));
            cpu_sleep();
        }
        cpu_restore(masked);
    }
    while (moves && systick_counter() < until) {
    }
}
