/* For boards without these. */
#include "board.h"
#include "systick.h"

__attribute__((weak)) const char board_sync_pin[] = "none";

__attribute__((weak)) void board_sync_line(bool high) {
    (void)high;
}

__attribute__((weak)) void board_systick_interrupt(void) {
    systick_interrupt();
}

__attribute__((weak)) void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    serial[0] = '\0';
}

__attribute__((weak)) long board_temperature_mc(void) {
    return 0;
}
