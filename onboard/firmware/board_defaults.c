/* Defaults of the functions that a chip's file may leave out. */
#include "board.h"
#include "systick.h"

/* --- instruments ------------------------------------------------------------------------------ */

__attribute__((weak)) const char *board_sync_pin(void) {
    return NULL;
}

__attribute__((weak)) void board_sync_line(bool high) {
    (void)high;
}

/* --- the counter: SysTick --------------------------------------------------------------------- */

__attribute__((weak)) const char *board_counter_name(void) {
    return "systick";
}

__attribute__((weak)) uint32_t board_counter_hz(void) {
    return board_clock_hz();
}

__attribute__((weak)) void board_counter_init(void) {
    systick_init(board_counter_hz());
}

__attribute__((weak)) uint64_t board_counter(void) {
    return systick_counter();
}

__attribute__((weak)) void board_counter_sleep(uint64_t until) {
    systick_sleep(until);
}

__attribute__((weak)) void board_counter_wait(void) {
    systick_wait();
}

__attribute__((weak)) void board_systick_interrupt(void) {
    systick_interrupt();
}

/* --- identity and thermometer ----------------------------------------------------------------- */

__attribute__((weak)) void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    serial[0] = '\0';
}

__attribute__((weak)) long board_temperature_mc(void) {
    return 0;
}
