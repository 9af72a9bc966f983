/* Arduino MKR1000 WiFi: Microchip SAMD21G18A, Cortex-M0+ at 48 MHz from the board's 32,768 Hz
 * crystal. There is no emulator of this chip: compiled, never run.
 *
 * The UART is Serial1 of the header: D14 sends, D13 receives, at 3.3 V; the USB socket belongs to
 * the boot loader, which a double press of the reset button enters. An SD card is wired as on the
 * MKR SD Proto and MKR MEM shields: D9 clock, D10 from the card, D8 to the card, D4 select. D7 tells
 * instruments when a window is open. The radio is held in reset.
 *
 * The chip's thermometer is not read: without calibration by the user it is good for ten degrees.
 *
 * Sources: SAM D21 data sheet DS40001882 (PM, SYSCTRL, GCLK, NVMCTRL, PORT, SERCOM; 10.3.3 serial
 * number) and errata DS80000760 (DFLL must not be on demand when it is written; sleep with the
 * flash's power saving); pin table of the Arduino variant mkr1000.
 */
#include "../board.h"
#include "../cpu.h"
#include "../systick.h"
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
#define DFLL_STEPS (31u << 26 | 511u << 16) /* half of either range */

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
enum { CLOCK_OF_DFLL = 0, CLOCK_OF_SERCOM1 = 0x15, CLOCK_OF_SERCOM5 = 0x19 };

#define NVMCTRL_CTRLB REG32(0x41004004)
#define CTRLB_1_WAIT_STATE_NO_SLEEP (1u << 1 | 3u << 8)

#define PORT_DIRSET(group) REG32(0x41004408 + 0x80 * (group))
#define PORT_OUTCLR(group) REG32(0x41004414 + 0x80 * (group))
#define PORT_OUTSET(group) REG32(0x41004418 + 0x80 * (group))
#define PORT_PMUX(group, pin) REG8(0x41004430 + 0x80 * (group) + (pin) / 2)
#define PORT_PINCFG(group, pin) REG8(0x41004440 + 0x80 * (group) + (pin))
#define PINCFG_FUNCTION 1u
enum { GROUP_A, GROUP_B };
enum { FUNCTION_C = 2, FUNCTION_D = 3 };

#define SERCOM(n) (0x42000800u + 0x400 * (n))
#define SERCOM_CTRLA(n) REG32(SERCOM(n))
#define CTRLA_RESET 1u
#define CTRLA_ENABLE 2u
#define CTRLA_USART (1u << 2)
#define CTRLA_SPI_MASTER (3u << 2)
#define CTRLA_SEND_ON_2_RECEIVE_ON_3 (1u << 16 | 3u << 20)
#define CTRLA_OUT_ON_0_IN_ON_3 (3u << 20)
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
enum { UART = 5, SPI = 1, SERCOM5_INTERRUPT = 14 };

enum { SYNC_PIN = 21 /* PA21 */, CARD_SELECT_PIN = 10 /* PB10 */ };
enum { RADIO_RESET_PIN = 27, RADIO_ENABLE_PIN = 28 /* PA27, PA28 */ };

/* Half of the clock over so much and one. */
enum { SPI_393_KHZ = 60, SPI_12_MHZ = 1 };

BOARD_VECTORS = {[SERCOM5_INTERRUPT] = jw_uart_interrupt};

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

/* The boot loader may have left other clocks running: all begin anew from the chip's own. */
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

static void connect(unsigned group, unsigned pin, unsigned function) {
    const unsigned shift = pin % 2 * 4;
    PORT_PMUX(group, pin) =
        (uint8_t)((PORT_PMUX(group, pin) & ~(15u << shift)) | function << shift);
    PORT_PINCFG(group, pin) = PINCFG_FUNCTION;
}

void board_init(void) {
    start_clocks();
    PORT_OUTCLR(GROUP_A) = 1u << RADIO_RESET_PIN | 1u << RADIO_ENABLE_PIN;
    PORT_DIRSET(GROUP_A) = 1u << RADIO_RESET_PIN | 1u << RADIO_ENABLE_PIN | 1u << SYNC_PIN;
    connect(GROUP_B, 22, FUNCTION_D);
    connect(GROUP_B, 23, FUNCTION_D);
    PM_APBCMASK |= APBC_SERCOM(UART);
    clock_from(CLOCK_OF_SERCOM5, 0);
}

/* As the data sheet names it; the counter is told what comes out of the crystal, a ten-thousandth
 * more. */
uint32_t board_clock_hz(void) {
    return 48000000;
}

/* --- SERCOM5 as UART -------------------------------------------------------------------------- */

static void reset_sercom(unsigned n) {
    SERCOM_CTRLA(n) = CTRLA_RESET;
    while (SERCOM_CTRLA(n) & CTRLA_RESET || SERCOM_SYNCBUSY(n)) {
    }
}

static void wait_for_sercom(unsigned n) {
    while (SERCOM_SYNCBUSY(n)) {
    }
}

const uint8_t board_uart_interrupt_number = SERCOM5_INTERRUPT;

void board_uart_init(uint32_t baud) {
    reset_sercom(UART);
    SERCOM_CTRLA(UART) = CTRLA_USART | CTRLA_SEND_ON_2_RECEIVE_ON_3 | CTRLA_LEAST_BIT_FIRST;
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

const char board_counter_name[] = "systick";

void board_counter_init(void) {
    systick_init(CLOCK_HZ);
}

uint32_t board_counter_hz(void) {
    return CLOCK_HZ;
}

uint64_t board_counter(void) {
    return systick_counter();
}

void board_counter_sleep(uint64_t until) {
    systick_sleep(until);
}

/* --- instruments and identity ----------------------------------------------------------------- */

const char board_sync_pin[] = "D7";

void board_sync_line(bool high) {
    if (high) {
        PORT_OUTSET(GROUP_A) = 1u << SYNC_PIN;
    } else {
        PORT_OUTCLR(GROUP_A) = 1u << SYNC_PIN;
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

/* --- SERCOM1 as SPI --------------------------------------------------------------------------- */

void board_spi_init(void) {
    PM_APBCMASK |= APBC_SERCOM(SPI);
    clock_from(CLOCK_OF_SERCOM1, 0);
    board_spi_select(false);
    PORT_DIRSET(GROUP_B) = 1u << CARD_SELECT_PIN;
    connect(GROUP_A, 16, FUNCTION_C);
    connect(GROUP_A, 17, FUNCTION_C);
    connect(GROUP_A, 19, FUNCTION_C);
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
    if (selected) {
        PORT_OUTCLR(GROUP_B) = 1u << CARD_SELECT_PIN;
    } else {
        PORT_OUTSET(GROUP_B) = 1u << CARD_SELECT_PIN;
    }
}

void board_spi_fast(bool fast) {
    reset_sercom(SPI);
    SERCOM_CTRLA(SPI) = CTRLA_SPI_MASTER | CTRLA_OUT_ON_0_IN_ON_3;
    SERCOM_CTRLB(SPI) = CTRLB_RECEIVE;
    wait_for_sercom(SPI);
    SPI_BAUD(SPI) = fast ? SPI_12_MHZ : SPI_393_KHZ;
    SERCOM_CTRLA(SPI) |= CTRLA_ENABLE;
    wait_for_sercom(SPI);
}
