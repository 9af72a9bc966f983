/* The clock is 48 MHz, from a crystal of 32,768 Hz. The chip's thermometer is not read: without
 * calibration by the user its error is up to ten degrees.
 *
 * Sources: SAM D21 data sheet DS40001882 (PM, SYSCTRL, GCLK, NVMCTRL, PORT, SERCOM; 10.3.3 serial
 * number) and errata DS80000760 (DFLL must not be on demand when it is written; sleep with the
 * flash's power saving).
 */
#include "samd21.h"

#include JW_BOARD_DATA
#include "board.h"
#include "cpu.h"
#include "message.h"

#define CRYSTAL_HZ 32768u
#define MULTIPLY 1465u
#define CLOCK_HZ (CRYSTAL_HZ * MULTIPLY)

#define PM_APBCMASK REG32(0x40000420)
#define APBC_SERCOM(n) (1u << (2 + (n)))

#define SYSCTRL_PCLKSR REG32(0x4000080C)
#define PCLKSR_CRYSTAL_READY (1u << 1)
#define PCLKSR_DFLL_READY (1u << 4)
#define PCLKSR_DFLL_LOCKED (1u << 6 | 1u << 7) /* fine and coarse */
#define SYSCTRL_XOSC32K REG16(0x40000814)
#define XOSC32K_CRYSTAL (6u << 8 | 1u << 3 | 1u << 2) /* 2 s to start, output on, crystal */
#define XOSC32K_ENABLE (1u << 1)
#define SYSCTRL_DFLLCTRL REG16(0x40000824)
#define DFLL_ENABLE (1u << 1)
#define DFLL_CLOSED_LOOP_AFTER_LOCK (1u << 2 | 1u << 9 | 1u << 11)
#define SYSCTRL_DFLLMUL REG32(0x4000082C)
#define DFLL_STEPS (31u << 26 | 511u << 16) /* half of each range */

#define GCLK_CTRL REG8(0x40000C00)
#define GCLK_RESET 1u
#define GCLK_STATUS REG8(0x40000C01)
#define GCLK_BUSY (1u << 7)
#define GCLK_CLKCTRL REG16(0x40000C02)
#define GCLK_CLOCK(id, generator) ((id) | (generator) << 8 | 1u << 14)
#define GCLK_GENCTRL REG32(0x40000C04)
#define GCLK_GENERATOR(id, source) ((id) | (source) << 8 | 1u << 16)
#define GCLK_GENDIV REG32(0x40000C08)
enum { SOURCE_XOSC32K = 5, SOURCE_DFLL = 7 };
enum { CLOCK_OF_DFLL = 0, CLOCK_OF_SERCOM0 = 0x14 };

#define NVMCTRL_CTRLB REG32(0x41004004)
#define CTRLB_1_WAIT_STATE_NO_SLEEP (1u << 1 | 3u << 8)

#define PORT_DIRSET(group) REG32(0x41004408 + 0x80 * (group))
#define PORT_OUTCLR(group) REG32(0x41004414 + 0x80 * (group))
#define PORT_OUTSET(group) REG32(0x41004418 + 0x80 * (group))
#define PORT_PMUX(group, pin) REG8(0x41004430 + 0x80 * (group) + (pin) / 2)
#define PORT_PINCFG(group, pin) REG8(0x41004440 + 0x80 * (group) + (pin))
#define PINCFG_FUNCTION 1u

#define SERCOM(n) (0x42000800u + 0x400 * (n))
#define SERCOM_CTRLA(n) REG32(SERCOM(n))
#define CTRLA_RESET 1u
#define CTRLA_ENABLE 2u
#define CTRLA_USART (1u << 2)
#define CTRLA_SPI_MASTER (3u << 2)
#define CTRLA_LEAST_BIT_FIRST (1u << 30)
#define SERCOM_CTRLB(n) REG32(SERCOM(n) + 0x04)
#define CTRLB_SEND (1u << 16)
#define CTRLB_RECEIVE (1u << 17)
#define USART_BAUD(n) REG16(SERCOM(n) + 0x0C)
#define SPI_BAUD(n) REG8(SERCOM(n) + 0x0C)
#define SERCOM_INTENSET(n) REG8(SERCOM(n) + 0x16)
#define SERCOM_INTFLAG(n) REG8(SERCOM(n) + 0x18)
#define FLAG_SEND_EMPTY 1u
#define FLAG_SENT 2u
#define FLAG_RECEIVED 4u
#define SERCOM_STATUS(n) REG16(SERCOM(n) + 0x1A)
#define SERCOM_SYNCBUSY(n) REG32(SERCOM(n) + 0x1C)
#define SERCOM_DATA(n) REG16(SERCOM(n) + 0x28)
enum { SERCOM0_INTERRUPT = 9 };

#define UART board_data.uart.sercom
#define SPI board_spi_card.spi.sercom

/* Only the UART's SERCOM has interrupts enabled. */
BOARD_VECTORS = {
    [SERCOM0_INTERRUPT] = jw_uart_interrupt,     [SERCOM0_INTERRUPT + 1] = jw_uart_interrupt,
    [SERCOM0_INTERRUPT + 2] = jw_uart_interrupt, [SERCOM0_INTERRUPT + 3] = jw_uart_interrupt,
    [SERCOM0_INTERRUPT + 4] = jw_uart_interrupt, [SERCOM0_INTERRUPT + 5] = jw_uart_interrupt,
};

/* --- clocks and pins -------------------------------------------------------------------------- */

static void wait_for_generators(void) {
    while (GCLK_STATUS & GCLK_BUSY) {
    }
}

static void start_generator(uint32_t id, uint32_t source) {
    GCLK_GENDIV = id;
    wait_for_generators();
    GCLK_GENCTRL = GCLK_GENERATOR(id, source);
    wait_for_generators();
}

static void clock_from(unsigned id, unsigned generator) {
    GCLK_CLKCTRL = (uint16_t)GCLK_CLOCK(id, generator);
    wait_for_generators();
}

static void wait_for(uint32_t ready) {
    while ((SYSCTRL_PCLKSR & ready) != ready) {
    }
}

/* Start all clocks from the chip's reset state, since the boot loader may have changed them. */
static void start_clocks(void) {
    NVMCTRL_CTRLB = CTRLB_1_WAIT_STATE_NO_SLEEP;
    SYSCTRL_XOSC32K = XOSC32K_CRYSTAL;
    SYSCTRL_XOSC32K = XOSC32K_CRYSTAL | XOSC32K_ENABLE;
    wait_for(PCLKSR_CRYSTAL_READY);
    GCLK_CTRL = GCLK_RESET;
    while (GCLK_CTRL & GCLK_RESET) {
    }
    wait_for_generators();
    start_generator(1, SOURCE_XOSC32K);
    clock_from(CLOCK_OF_DFLL, 1);
    SYSCTRL_DFLLCTRL = DFLL_ENABLE;
    wait_for(PCLKSR_DFLL_READY);
    SYSCTRL_DFLLMUL = DFLL_STEPS | MULTIPLY;
    wait_for(PCLKSR_DFLL_READY);
    SYSCTRL_DFLLCTRL = DFLL_ENABLE | DFLL_CLOSED_LOOP_AFTER_LOCK;
    wait_for(PCLKSR_DFLL_READY | PCLKSR_DFLL_LOCKED);
    start_generator(0, SOURCE_DFLL);
}

static void connect(samd21_pin pin) {
    const unsigned shift = pin.number % 2 * 4;
    PORT_PMUX(pin.group, pin.number) =
        (uint8_t)((PORT_PMUX(pin.group, pin.number) & ~(15u << shift)) | pin.function << shift);
    PORT_PINCFG(pin.group, pin.number) = PINCFG_FUNCTION;
}

static void make_output(samd21_pin pin) {
    PORT_DIRSET(pin.group) = 1u << pin.number;
}

static void set_pin(samd21_pin pin, bool high) {
    if (high) {
        PORT_OUTSET(pin.group) = 1u << pin.number;
    } else {
        PORT_OUTCLR(pin.group) = 1u << pin.number;
    }
}

static void start_sercom(unsigned n) {
    PM_APBCMASK |= APBC_SERCOM(n);
    clock_from(CLOCK_OF_SERCOM0 + n, 0);
}

void board_init(void) {
    start_clocks();
    for (unsigned group = 0; group < SAMD21_GROUPS; group++) {
        PORT_OUTCLR(group) = board_data.held_low[group];
        PORT_DIRSET(group) = board_data.held_low[group];
    }
    if (board_data.sync_name) {
        make_output(board_data.sync);
    }
    connect(board_data.send);
    connect(board_data.receive);
    start_sercom(UART);
}

/* Nominal frequency of the data sheet. The counter uses the exact one, which the crystal makes
 * higher by a ten-thousandth. */
uint32_t board_clock_hz(void) {
    return 48000000;
}

/* --- a SERCOM as UART ------------------------------------------------------------------------- */

static void reset_sercom(unsigned n) {
    SERCOM_CTRLA(n) = CTRLA_RESET;
    while (SERCOM_CTRLA(n) & CTRLA_RESET || SERCOM_SYNCBUSY(n)) {
    }
}

static void wait_for_sercom(unsigned n) {
    while (SERCOM_SYNCBUSY(n)) {
    }
}

unsigned board_uart_interrupt_number(void) {
    return SERCOM0_INTERRUPT + UART;
}

void board_uart_init(uint32_t baud) {
    reset_sercom(UART);
    SERCOM_CTRLA(UART) = CTRLA_USART | board_data.uart.pads | CTRLA_LEAST_BIT_FIRST;
    SERCOM_CTRLB(UART) = CTRLB_SEND | CTRLB_RECEIVE;
    wait_for_sercom(UART);
    USART_BAUD(UART) = (uint16_t)(65536u - ((uint64_t)baud << 20) / CLOCK_HZ);
    SERCOM_INTENSET(UART) = FLAG_RECEIVED;
    SERCOM_CTRLA(UART) |= CTRLA_ENABLE;
    wait_for_sercom(UART);
}

bool board_uart_receive(uint8_t *byte) {
    if (!(SERCOM_INTFLAG(UART) & FLAG_RECEIVED)) {
        return false;
    }
    SERCOM_STATUS(UART) = SERCOM_STATUS(UART); /* writing ones clears errors */
    *byte = (uint8_t)SERCOM_DATA(UART);
    return true;
}

void board_uart_send(uint8_t byte) {
    while (!(SERCOM_INTFLAG(UART) & FLAG_SEND_EMPTY)) {
    }
    SERCOM_DATA(UART) = byte;
}

void board_uart_flush(void) {
    while (!(SERCOM_INTFLAG(UART) & FLAG_SENT)) {
    }
}

/* --- counter ---------------------------------------------------------------------------------- */

uint32_t board_counter_hz(void) {
    return CLOCK_HZ;
}

/* --- instruments and identity ----------------------------------------------------------------- */

const char *board_sync_pin(void) {
    return board_data.sync_name;
}

void board_sync_line(bool high) {
    if (board_data.sync_name) {
        set_pin(board_data.sync, high);
    }
}

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    static const uint32_t words[] = {0x0080A00C, 0x0080A040, 0x0080A044, 0x0080A048};
    jw_message message;
    jw_message_begin(&message, serial, BOARD_SERIAL_BYTES);
    for (unsigned n = 0; n < sizeof words / sizeof words[0]; n++) {
        jw_message_bits(&message, REG32(words[n]));
    }
}

/* --- a SERCOM as SPI, for boards with a card -------------------------------------------------- */

void board_spi_init(void) {
    start_sercom(SPI);
    board_spi_select(false);
    make_output(board_spi_card.select);
    connect(board_spi_card.to_card);
    connect(board_spi_card.clock);
    connect(board_spi_card.from_card);
    board_spi_fast(false);
}

uint8_t board_spi_exchange(uint8_t byte) {
    while (!(SERCOM_INTFLAG(SPI) & FLAG_SEND_EMPTY)) {
    }
    SERCOM_DATA(SPI) = byte;
    while (!(SERCOM_INTFLAG(SPI) & FLAG_RECEIVED)) {
    }
    return (uint8_t)SERCOM_DATA(SPI);
}

void board_spi_select(bool selected) {
    set_pin(board_spi_card.select, !selected);
}

void board_spi_fast(bool fast) {
    reset_sercom(SPI);
    SERCOM_CTRLA(SPI) = CTRLA_SPI_MASTER | board_spi_card.spi.pads;
    SERCOM_CTRLB(SPI) = CTRLB_RECEIVE;
    wait_for_sercom(SPI);
    SPI_BAUD(SPI) = fast ? board_spi_card.fast_baud : board_spi_card.slow_baud;
    SERCOM_CTRLA(SPI) |= CTRLA_ENABLE;
    wait_for_sercom(SPI);
}
