/* Nordic nRF52840 DK (PCA10056): Cortex-M4F at 64 MHz. Has never run on hardware here; it shares
 * UART and timer with the micro:bit, which ran in QEMU.
 *
 * The UART goes to the debugger on the board, and from there over USB. Sources: nRF52840 Product
 * Specification 1.7; nRF52840 DK Hardware user guide (P0.06 and P0.08 to the debugger; P1.10 on the
 * Arduino header, D8).
 */
#include "../board.h"
#include "../chips/nrf5.h"
#include "../cpu.h"

enum { SEND_PIN = 6, RECEIVE_PIN = 8, SYNC_PIN = 32 + 10 };

#define POWER_DCDCEN REG32(0x40000578)
#define NVMC_ICACHECNF REG32(0x4001E540)
#define TEMP_START REG32(0x4000C000)
#define TEMP_STOP REG32(0x4000C004)
#define TEMP_DATARDY REG32(0x4000C100)
#define TEMP_TEMP REG32(0x4000C508)

BOARD_VECTORS = {
    [NRF5_UART_INTERRUPT] = jw_uart_interrupt,
    [NRF5_TIMER0_INTERRUPT] = nrf5_timer_interrupt,
};

/* As the data sheet's currents are stated: with the DC/DC converter, whose coil the board has, and
 * with the cache in front of the flash. */
void board_init(void) {
    nrf5_start_crystal();
    POWER_DCDCEN = 1;
    NVMC_ICACHECNF = 1;
    nrf5_output(SYNC_PIN);
}

uint32_t board_clock_hz(void) {
    return 64000000;
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

const char board_sync_pin[] = "P1.10";

void board_sync_line(bool high) {
    nrf5_set(SYNC_PIN, high);
}

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    nrf5_serial(serial);
}

/* Quarters of a degree, after some 36 us. */
long board_temperature_mc(void) {
    TEMP_DATARDY = 0;
    TEMP_START = 1;
    while (!TEMP_DATARDY) {
    }
    const long quarters = (long)(int32_t)TEMP_TEMP;
    TEMP_STOP = 1;
    return quarters * 250;
}
