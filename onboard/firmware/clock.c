#include "clock.h"

#include <stdint.h>

#include "board.h"
#include "core.h"
#include "platform.h"

#define NS_PER_S 1000000000u

/* A tick is exactly numerator / denominator nanoseconds, so that the clock does not drift. */
static uint32_t numerator, denominator;

/* Divisions take hundreds of instructions on an M0. Most clocks need none: their denominator is a
 * power of two, and the product does not overflow for years. */
static bool is_simple;
static uint32_t shift;

static bool moves;

void jw_clock_init(void) {
    board_counter_init();
    const uint32_t hz = board_counter_hz();
    const uint32_t common = jw_greatest_common_divisor(NS_PER_S, hz);
    numerator = NS_PER_S / common;
    denominator = hz / common;
    shift = (uint32_t)__builtin_ctz(denominator);
    is_simple = denominator == 1u << shift && numerator < 1024;
    const uint64_t first = board_counter();
    for (uint32_t tries = 0; tries < 1000000 && !moves; tries++) {
        moves = board_counter() != first;
    }
}

bool jw_clock_moves(void) {
    return moves;
}

uint64_t jw_clock_ns(void) {
    const uint64_t ticks = board_counter();
    if (is_simple) {
        return ticks * numerator >> shift;
    }
    const uint64_t whole = ticks / denominator, rest = ticks - whole * denominator;
    return whole * numerator + rest * numerator / denominator;
}

/* Only its own interrupts preempt the program. */
uint64_t jw_running_ns(void) {
    return jw_clock_ns();
}

uint64_t jw_working_ns(void) {
    return jw_clock_ns();
}

uint64_t jw_frequency_khz(void) {
    return board_clock_hz() / 1000;
}

long jw_temperature_mc(void) {
    return board_temperature_mc();
}

/* Sleep until the first tick at which the clock is not before clock_ns. */
void jw_sleep_until(uint64_t clock_ns) {
    const uint64_t whole = clock_ns / numerator, rest = clock_ns - whole * numerator;
    board_counter_sleep(whole * denominator + (rest * denominator + numerator - 1) / numerator);
}

void jw_sync_line(bool high) {
    board_sync_line(high);
}
