/* UART0 and one SPI port are used; the image sets up the clock. Source: Cortex-M System Design Kit
 * TRM DDI 0479 (APB UART). */
#include "cmsdk.h"

#include JW_BOARD_DATA
#include "board.h"
#include "cpu.h"
#include "pl022.h"
#include "systick.h"

#define UART0_DATA REG32(0x40004000)
#define UART0_STATE REG32(0x40004004)
#define UART0_CONTROL REG32(0x40004008)
#define UART0_INTERRUPT REG32(0x4000400C)
#define UART0_DIVIDER REG32(0x40004010)
#define STATE_SEND_FULL 1u
#define STATE_RECEIVED 2u
#define STATE_OVERRUN 8u
#define CONTROL_SEND_RECEIVE_INTERRUPT (1u | 2u | 8u)
#define INTERRUPT_RECEIVED 2u

enum { UART0_RECEIVE_INTERRUPT = 0 };

BOARD_VECTORS = {[UART0_RECEIVE_INTERRUPT] = jw_uart_interrupt};

void board_init(void) {
}

uint32_t board_clock_hz(void) {
    return board_data.clock_hz;
}

/* --- UART0 ------------------------------------------------------------------------------------ */

static uint32_t byte_ticks;

unsigned board_uart_interrupt_number(void) {
    return UART0_RECEIVE_INTERRUPT;
}

void board_uart_init(uint32_t baud) {
    UART0_DIVIDER = (board_data.clock_hz + baud / 2) / baud;
    UART0_CONTROL = CONTROL_SEND_RECEIVE_INTERRUPT;
    byte_ticks = board_data.clock_hz / baud * 10;
}

bool board_uart_receive(uint8_t *byte) {
    UART0_INTERRUPT = INTERRUPT_RECEIVED;
    UART0_STATE = STATE_OVERRUN;
    if (!(UART0_STATE & STATE_RECEIVED)) {
        return false;
    }
    *byte = (uint8_t)UART0_DATA;
    return true;
}

void board_uart_send(uint8_t byte) {
    while (UART0_STATE & STATE_SEND_FULL) {
    }
    UART0_DATA = byte;
}

/* The shift register has no flag: wait for the time of a byte. */
void board_uart_flush(void) {
    while (UART0_STATE & STATE_SEND_FULL) {
    }
    systick_sleep(systick_counter() + byte_ticks);
}

/* --- external RAM ----------------------------------------------------------------------------- */

unsigned char *board_psram(uint32_t *bytes) {
    *bytes = board_external.bytes;
    return (unsigned char *)(uintptr_t)board_external.address;
}

/* --- SPI, for boards with a card -------------------------------------------------------------- */

void board_spi_init(void) {
    pl022_init(board_spi_card.port, board_spi_card.slow_divider);
}

uint8_t board_spi_exchange(uint8_t byte) {
    return pl022_exchange(board_spi_card.port, byte);
}

/* The card is always selected: see cmsdk_card. */
void board_spi_select(bool selected) {
    (void)selected;
}

void board_spi_fast(bool fast) {
    pl022_set_divider(board_spi_card.port,
                      fast ? board_spi_card.fast_divider : board_spi_card.slow_divider);
}
