/* BBC micro:bit, first version: Nordic nRF51822, Cortex-M0 at 16 MHz. Ran in QEMU (microbit); has
 * never run on hardware here.
 *
 * The UART goes to the interface chip, and from there over USB. Sources: nRF51822 Product
 * Specification 3.1; micro:bit 1.3 schematics (P0.24 and P0.25 to the interface chip, P0.03 to pad
 * 0 of the edge connector).
 */
#include "../board.h"
#include "../chips/nrf5.h"

enum { SEND_PIN = 24, RECEIVE_PIN = 25, SYNC_PIN = 3 };

BOARD_VECTORS = {
    [NRF5_UART_INTERRUPT] = jw_uart_interrupt,
    [NRF5_TIMER0_INTERRUPT] = nrf5_timer_interrupt,
};

void board_init(void) {
    nrf5_start_crystal();
    nrf5_output(SYNC_PIN);
}

uint32_t board_clock_hz(void) {
    return 16000000;
}

const uint8_t board_uart_interrupt_number = NRF5_UART_INTERRUPT;

void board_uart_init(uint32_t baud) {
    nrf5_uart_init(SEND_PIN, RECEIVE_PIN, baud);
}

bool board_uart_receive(uint8_t *byte) {
    return nrf5_uart_receive(byte);
}

void board_uart_send(uint8_t byte) {
    nrf5_uart_send(byte);
}

void board_uart_flush(void) {
}

const char board_counter_name[] = "timer0";

void board_counter_init(void) {
    nrf5_timer_init();
}

uint32_t board_counter_hz(void) {
    return NRF5_TIMER_HZ;
}

uint64_t board_counter(void) {
    return nrf5_timer_counter();
}

void board_counter_sleep(uint64_t until) {
    nrf5_timer_sleep(until);
}

const char board_sync_pin[] = "P0.03";

void board_sync_line(bool high) {
    nrf5_set(SYNC_PIN, high);
}

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    nrf5_serial(serial);
}
