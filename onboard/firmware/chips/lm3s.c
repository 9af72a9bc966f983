/* The PLL makes 200 MHz from the crystal. UART0 is a PL011 on pins A0 and A1, SSI0 a PL022 on pins
 * A2, A4 and A5. Sources: LM3S6965 data sheet; Arm PrimeCell PL011 TRM. */
#include "lm3s.h"

#include JW_BOARD_DATA
#include "board.h"
#include "cpu.h"
#include "pl022.h"

#define CLOCK_HZ (200000000u / board_data.pll_divisor)

#define SYSCTL_RIS REG32(0x400FE050)
#define SYSCTL_RCC REG32(0x400FE060)
#define RIS_PLL_LOCKED (1u << 6)
#define RCC_MAIN_OSCILLATOR_OFF (1u << 0)
#define RCC_SOURCE_MASK (3u << 4)
#define RCC_CRYSTAL_MASK (15u << 6)
#define RCC_CRYSTAL(crystal) ((crystal) << 6)
#define RCC_BYPASS (1u << 11)
#define RCC_PLL_OFF (1u << 13)
#define RCC_DIVIDE (1u << 22)
#define RCC_DIVISOR_MASK (15u << 23)
#define RCC_DIVISOR(divisor) (((divisor) - 1) << 23)
#define SYSCTL_RCGC1 REG32(0x400FE104)
#define RCGC1_UART0_SSI0 (1u << 0 | 1u << 4)
#define SYSCTL_RCGC2 REG32(0x400FE108)

#define GPIO(port) (0x40004000u + 0x1000 * (port))
#define GPIO_DATA(port, pins) REG32(GPIO(port) + ((pins) << 2))
#define GPIO_DIR(port) REG32(GPIO(port) + 0x400)
#define GPIO_AFSEL(port) REG32(GPIO(port) + 0x420)
#define GPIO_DEN(port) REG32(GPIO(port) + 0x51C)

#define UART0_DATA REG32(0x4000C000)
#define UART0_FLAGS REG32(0x4000C018)
#define FLAGS_BUSY (1u << 3)
#define FLAGS_RECEIVE_EMPTY (1u << 4)
#define FLAGS_SEND_FULL (1u << 5)
#define UART0_DIVISOR REG32(0x4000C024)
#define UART0_DIVISOR_64TH REG32(0x4000C028)
#define UART0_LINE REG32(0x4000C02C)
#define LINE_8_BITS_FIFO (3u << 5 | 1u << 4)
#define UART0_CONTROL REG32(0x4000C030)
#define CONTROL_ENABLE_SEND_RECEIVE (1u << 0 | 1u << 8 | 1u << 9)
#define UART0_LEVELS REG32(0x4000C034)
#define UART0_MASK REG32(0x4000C038)
#define UART0_CLEAR REG32(0x4000C044)
#define INTERRUPT_RECEIVE_AND_TIMEOUT (1u << 4 | 1u << 6)

#define SSI0 0x40008000u

/* Pins of port A. */
#define UART_PINS (1u << 0 | 1u << 1)
#define SSI_PINS (1u << 2 | 1u << 4 | 1u << 5)

enum { UART0_INTERRUPT = 5 };

BOARD_VECTORS = {[UART0_INTERRUPT] = jw_uart_interrupt};

void board_init(void) {
    uint32_t clock = (SYSCTL_RCC | RCC_BYPASS) & ~RCC_DIVIDE;
    SYSCTL_RCC = clock;
    clock &= ~(RCC_MAIN_OSCILLATOR_OFF | RCC_SOURCE_MASK | RCC_CRYSTAL_MASK | RCC_PLL_OFF);
    clock |= RCC_CRYSTAL(board_data.crystal);
    SYSCTL_RCC = clock;
    clock = (clock & ~RCC_DIVISOR_MASK) | RCC_DIVISOR(board_data.pll_divisor) | RCC_DIVIDE;
    SYSCTL_RCC = clock;
    while (!(SYSCTL_RIS & RIS_PLL_LOCKED)) {
    }
    SYSCTL_RCC = clock & ~RCC_BYPASS;
    SYSCTL_RCGC1 |= RCGC1_UART0_SSI0;
    SYSCTL_RCGC2 |= board_data.ports;
    (void)SYSCTL_RCGC2; /* the ports may be accessed three cycles later */
    GPIO_AFSEL(LM3S_GPIO_A) |= UART_PINS;
    GPIO_DEN(LM3S_GPIO_A) |= UART_PINS;
}

uint32_t board_clock_hz(void) {
    return CLOCK_HZ;
}

/* --- UART0 ------------------------------------------------------------------------------------ */

unsigned board_uart_interrupt_number(void) {
    return UART0_INTERRUPT;
}

void board_uart_init(uint32_t baud) {
    const uint32_t divisor = (4 * CLOCK_HZ + baud / 2) / baud; /* in 64ths of 16 cycles */
    UART0_CONTROL = 0;
    UART0_DIVISOR = divisor / 64;
    UART0_DIVISOR_64TH = divisor % 64;
    UART0_LINE = LINE_8_BITS_FIFO;
    UART0_LEVELS = 0; /* interrupt from two bytes of sixteen on, or after a pause */
    UART0_MASK = INTERRUPT_RECEIVE_AND_TIMEOUT;
    UART0_CONTROL = CONTROL_ENABLE_SEND_RECEIVE;
}

bool board_uart_receive(uint8_t *byte) {
    if (UART0_FLAGS & FLAGS_RECEIVE_EMPTY) {
        UART0_CLEAR = INTERRUPT_RECEIVE_AND_TIMEOUT;
        /* Check again: a byte received in between would raise no interrupt. */
        if (UART0_FLAGS & FLAGS_RECEIVE_EMPTY) {
            return false;
        }
    }
    *byte = (uint8_t)UART0_DATA;
    return true;
}

void board_uart_send(uint8_t byte) {
    while (UART0_FLAGS & FLAGS_SEND_FULL) {
    }
    UART0_DATA = byte;
}

void board_uart_flush(void) {
    while (UART0_FLAGS & FLAGS_BUSY) {
    }
}

/* --- SSI0, for boards with a card ------------------------------------------------------------- */

/* Outputs are high from the start, since selected devices are low. */
static void set_up_outputs(lm3s_pins outputs) {
    GPIO_DIR(outputs.port) |= outputs.pins;
    GPIO_DATA(outputs.port, outputs.pins) = outputs.pins;
    GPIO_DEN(outputs.port) |= outputs.pins;
}

void board_spi_init(void) {
    for (unsigned n = 0; n < sizeof board_spi_card.held_high / sizeof(lm3s_pins); n++) {
        set_up_outputs(board_spi_card.held_high[n]);
    }
    set_up_outputs(board_spi_card.select);
    GPIO_AFSEL(LM3S_GPIO_A) |= SSI_PINS;
    GPIO_DEN(LM3S_GPIO_A) |= SSI_PINS;
    pl022_init(SSI0, board_spi_card.slow_divider);
}

uint8_t board_spi_exchange(uint8_t byte) {
    return pl022_exchange(SSI0, byte);
}

void board_spi_select(bool selected) {
    const lm3s_pins select = board_spi_card.select;
    GPIO_DATA(select.port, select.pins) = selected ? 0 : select.pins;
}

void board_spi_fast(bool fast) {
    pl022_set_divider(SSI0, fast ? board_spi_card.fast_divider : board_spi_card.slow_divider);
}
