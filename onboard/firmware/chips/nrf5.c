/* Sources: nRF51 Series Reference Manual 3.0; nRF52840 Product Specification 1.7. UART, TIMER,
 * CLOCK and GPIO have the same registers in both; POWER, NVMC and TEMP are those of the nRF52.
 *
 * The counter is TIMER0 with 32 bits at 16 MHz: the nRF51 has no SysTick, and that of the nRF52
 * stops while the core sleeps.
 */
#include "nrf5.h"

#include JW_BOARD_DATA
#include "board.h"
#include "cpu.h"
#include "message.h"

#define CLOCK_HFCLKSTART REG32(0x40000000)
#define CLOCK_HFCLKSTARTED REG32(0x40000100)

#define POWER_DCDCEN REG32(0x40000578)
#define NVMC_ICACHECNF REG32(0x4001E540)

#define UART_STARTRX REG32(0x40002000)
#define UART_STARTTX REG32(0x40002008)
#define UART_RXDRDY REG32(0x40002108)
#define UART_TXDRDY REG32(0x4000211C)
#define UART_INTENSET REG32(0x40002304)
#define UART_INTEN_RXDRDY 4u
#define UART_ENABLE REG32(0x40002500)
#define UART_ENABLED 4u
#define UART_PSELTXD REG32(0x4000250C)
#define UART_PSELRXD REG32(0x40002514)
#define UART_RXD REG32(0x40002518)
#define UART_TXD REG32(0x4000251C)
#define UART_BAUDRATE REG32(0x40002524)

#define TIMER_START REG32(0x40008000)
#define TIMER_STOP REG32(0x40008004)
#define TIMER_CAPTURE0 REG32(0x40008040)
#define TIMER_COMPARE(n) REG32(0x40008140 + 4 * (n))
#define TIMER_INTENSET REG32(0x40008304)
#define TIMER_MODE REG32(0x40008504)
#define TIMER_BITMODE REG32(0x40008508)
#define TIMER_32_BITS 3u
#define TIMER_PRESCALER REG32(0x40008510)
#define TIMER_CC(n) REG32(0x40008540 + 4 * (n))
#define TIMER_HZ 16000000u

#define TEMP_START REG32(0x4000C000)
#define TEMP_STOP REG32(0x4000C004)
#define TEMP_DATARDY REG32(0x4000C100)
#define TEMP_TEMP REG32(0x4000C508)

#define FICR_DEVICEID(n) REG32(0x10000060 + 4 * (n))

#define GPIO_OUTSET(port) REG32(0x50000508 + 0x300 * (port))
#define GPIO_OUTCLR(port) REG32(0x5000050C + 0x300 * (port))
#define GPIO_DIRSET(port) REG32(0x50000518 + 0x300 * (port))
#define GPIO_PIN_CNF(port, pin) REG32(0x50000700 + 0x300 * (port) + 4 * (pin))
#define PIN_CNF_INPUT_PULLED_UP (3u << 2)

enum { UART_INTERRUPT = 2, TIMER0_INTERRUPT = 8 };

static void timer_interrupt(void);

BOARD_VECTORS = {
    [UART_INTERRUPT] = jw_uart_interrupt,
    [TIMER0_INTERRUPT] = timer_interrupt,
};

/* --- GPIO ------------------------------------------------------------------------------------- */

static void make_output(unsigned pin) {
    GPIO_DIRSET(pin / 32) = 1u << pin % 32;
}

static void set_pin(unsigned pin, bool high) {
    if (high) {
        GPIO_OUTSET(pin / 32) = 1u << pin % 32;
    } else {
        GPIO_OUTCLR(pin / 32) = 1u << pin % 32;
    }
}

const char *board_sync_pin(void) {
    return board_data.sync_name;
}

void board_sync_line(bool high) {
    if (board_data.sync_name) {
        set_pin(board_data.sync, high);
    }
}

/* --- start ------------------------------------------------------------------------------------ */

/* Waits for the crystal, since the oscillator that runs after reset is off by one percent or more.
 * The nRF52 is set up as in its data sheet's current figures: with the DC/DC converter if the board
 * has its coil, and with the cache of the flash. */
void board_init(void) {
    CLOCK_HFCLKSTARTED = 0;
    CLOCK_HFCLKSTART = 1;
    while (!CLOCK_HFCLKSTARTED) {
    }
    if (board_data.has_dcdc_coil) {
        POWER_DCDCEN = 1;
    }
    if (board_data.series == NRF52) {
        NVMC_ICACHECNF = 1;
    }
    if (board_data.sync_name) {
        make_output(board_data.sync);
    }
}

uint32_t board_clock_hz(void) {
    return board_data.series == NRF52 ? 64000000 : 16000000;
}

/* --- UART ------------------------------------------------------------------------------------- */

unsigned board_uart_interrupt_number(void) {
    return UART_INTERRUPT;
}

void board_uart_init(uint32_t baud) {
    set_pin(board_data.send, true);
    make_output(board_data.send);
    /* Pulled up, so that an open line reads as idle. */
    GPIO_PIN_CNF(board_data.receive / 32, board_data.receive % 32) = PIN_CNF_INPUT_PULLED_UP;
    UART_PSELTXD = board_data.send;
    UART_PSELRXD = board_data.receive;
    /* 2^32 is 16 Mbaud; only the upper 20 bits are used. */
    UART_BAUDRATE = (uint32_t)((((uint64_t)baud << 32) / 16000000u + 0x800) & 0xFFFFF000u);
    UART_ENABLE = UART_ENABLED;
    UART_RXDRDY = 0;
    UART_STARTRX = 1;
    UART_STARTTX = 1;
    UART_INTENSET = UART_INTEN_RXDRDY;
}

/* The event is cleared first: reading moves up the next byte of the FIFO, which sets the event
 * again. */
bool board_uart_receive(uint8_t *byte) {
    if (!UART_RXDRDY) {
        return false;
    }
    UART_RXDRDY = 0;
    (void)UART_RXDRDY; /* completes the write before the interrupt returns */
    *byte = (uint8_t)UART_RXD;
    return true;
}

/* Waits until the byte is sent: nothing else shows that the transmitter is free. */
void board_uart_send(uint8_t byte) {
    UART_TXDRDY = 0;
    UART_TXD = byte;
    while (!UART_TXDRDY) {
    }
}

void board_uart_flush(void) {
}

/* --- counter ---------------------------------------------------------------------------------- */

/* Compare registers: 0 reads the timer, 1 interrupts every second to extend it, 2 ends sleep. */
static uint64_t counted;

const char *board_counter_name(void) {
    return "timer0";
}

uint32_t board_counter_hz(void) {
    return TIMER_HZ;
}

void board_counter_init(void) {
    TIMER_MODE = 0;
    TIMER_BITMODE = TIMER_32_BITS;
    TIMER_PRESCALER = 0;
    TIMER_CC(1) = TIMER_HZ;
    TIMER_INTENSET = 3u << 17; /* compare 1 and 2 */
    TIMER_START = 1;
    cpu_interrupt_enable(TIMER0_INTERRUPT);
}

/* The interrupt ensures that the timer is read at least once in its range. */
uint64_t board_counter(void) {
    const uint32_t masked = cpu_mask();
    TIMER_CAPTURE0 = 1;
    counted += TIMER_CC(0) - (uint32_t)counted;
    const uint64_t now = counted;
    cpu_restore(masked);
    return now;
}

static void timer_interrupt(void) {
    TIMER_COMPARE(1) = 0;
    TIMER_COMPARE(2) = 0;
    TIMER_CC(1) = (uint32_t)board_counter() + TIMER_HZ;
}

void board_counter_sleep(uint64_t until) {
    enum { AHEAD = 32 }; /* most ticks for setting the compare register */
    TIMER_CC(2) = (uint32_t)until;
    for (bool waiting = true; waiting;) {
        const uint32_t masked = cpu_mask();
        waiting = board_counter() + AHEAD < until;
        if (waiting) {
            cpu_sleep();
        }
        cpu_restore(masked);
    }
    while (board_counter() < until) {
    }
}

void board_counter_wait(void) {
    TIMER_STOP = 1;
    cpu_sleep();
    TIMER_CC(1) = (uint32_t)board_counter() + TIMER_HZ;
    TIMER_START = 1;
}

/* --- identity and thermometer ----------------------------------------------------------------- */

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    jw_message message;
    jw_message_begin(&message, serial, BOARD_SERIAL_BYTES);
    jw_message_bits(&message, FICR_DEVICEID(1));
    jw_message_bits(&message, FICR_DEVICEID(0));
}

/* The sensor has quarters of a degree, after about 36 us. That of the nRF51 is not read. */
long board_temperature_mc(void) {
    if (board_data.series != NRF52) {
        return 0;
    }
    TEMP_DATARDY = 0;
    TEMP_START = 1;
    while (!TEMP_DATARDY) {
    }
    const long quarters = (long)(int32_t)TEMP_TEMP;
    TEMP_STOP = 1;
    return quarters * 250;
}
