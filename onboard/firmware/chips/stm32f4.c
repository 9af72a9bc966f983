/* Source: reference manual RM0090, "RCC", "General-purpose timers (TIM2 to TIM5)", "USART", "GPIO",
 * "SPI", "Flash interface". */
#include "stm32f4.h"

#include "../board.h"
#include "../cpu.h"
#include "../systick.h"

#define FLASH_ACR REG32(0x40023C00)
#define ACR_5_WAIT_STATES_PREFETCH_CACHES (5u | 1u << 8 | 1u << 9 | 1u << 10)

#define RCC_CR REG32(0x40023800)
#define CR_CRYSTAL_ON (1u << 16)
#define CR_CRYSTAL_READY (1u << 17)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)
#define RCC_PLLCFGR REG32(0x40023804)
#define PLL_MULTIPLY(n) ((n) << 6)
#define PLL_FROM_CRYSTAL (1u << 22)
#define PLL_USB_DIVIDE(n) ((n) << 24)
#define RCC_CFGR REG32(0x40023808)
#define CFGR_APB1_BY_4_APB2_BY_2 (5u << 10 | 4u << 13)
#define CFGR_PLL 2u
#define CFGR_RUNS_ON_PLL (2u << 2)
#define CFGR_RUNS_ON_MASK (3u << 2)
#define RCC_AHB1ENR REG32(0x40023830)
#define RCC_APB1ENR REG32(0x40023840)
#define RCC_APB2ENR REG32(0x40023844)

#define APB1_TIM2 1u

#define TIM2_CR1 REG32(0x40000000)
#define TIM2_ENABLE 1u
#define TIM2_CNT REG32(0x40000024)
#define CYCLES_OF_TIMER 2u /* of the core */

#define GPIO(port) (0x40020000u + 0x400 * (port))
#define GPIO_MODER(port) REG32(GPIO(port))
#define MODE_OUTPUT 1u
#define MODE_FUNCTION 2u
#define GPIO_OSPEEDR(port) REG32(GPIO(port) + 0x08)
#define SPEED_HIGH 2u
#define GPIO_PUPDR(port) REG32(GPIO(port) + 0x0C)
#define PULL_UP 1u
#define GPIO_BSRR(port) REG32(GPIO(port) + 0x18)
#define GPIO_AFR(port, pin) REG32(GPIO(port) + 0x20 + 4 * ((pin) / 8))

#define USART_SR(usart) REG32(usart)
#define SR_ERRORS 0xFu
#define SR_RECEIVED (1u << 5)
#define SR_SENT (1u << 6)
#define SR_SEND_EMPTY (1u << 7)
#define USART_DR(usart) REG32((usart) + 0x04)
#define USART_BRR(usart) REG32((usart) + 0x08)
#define USART_CR1(usart) REG32((usart) + 0x0C)
#define CR1_ENABLE_SEND_RECEIVE_INTERRUPT (1u << 13 | 1u << 3 | 1u << 2 | 1u << 5)

#define SPI_CR1(spi) REG32(spi)
#define CR1_MASTER_SOFTWARE_SELECT (1u << 2 | 1u << 8 | 1u << 9)
#define CR1_ENABLE (1u << 6)
#define SPI_SR(spi) REG32((spi) + 0x08)
#define SPI_RECEIVED 1u
#define SPI_DR(spi) REG32((spi) + 0x0C)

/* After a reset the chip's own oscillator is on, so this register is never zero. QEMU has no clock
 * controller, reads zero here, and runs its core at 168 MHz from the start. */
static bool is_emulated(void) {
    return RCC_CR == 0;
}

void stm32f4_start_clock(uint32_t crystal_hz) {
    if (is_emulated()) {
        return;
    }
    RCC_CR |= CR_CRYSTAL_ON;
    while (!(RCC_CR & CR_CRYSTAL_READY)) {
    }
    FLASH_ACR = ACR_5_WAIT_STATES_PREFETCH_CACHES;
    RCC_CFGR = CFGR_APB1_BY_4_APB2_BY_2;
    /* 1 MHz times 336, by 2 for the core and by 7 for USB's 48 MHz. */
    RCC_PLLCFGR =
        crystal_hz / 1000000 | PLL_MULTIPLY(336u) | PLL_FROM_CRYSTAL | PLL_USB_DIVIDE(7u);
    RCC_CR |= CR_PLL_ON;
    while (!(RCC_CR & CR_PLL_READY)) {
    }
    RCC_CFGR = CFGR_APB1_BY_4_APB2_BY_2 | CFGR_PLL;
    while ((RCC_CFGR & CFGR_RUNS_ON_MASK) != CFGR_RUNS_ON_PLL) {
    }
}

void stm32f4_enable(uint32_t apb1, uint32_t apb2) {
    RCC_APB1ENR |= apb1;
    RCC_APB2ENR |= apb2;
    (void)RCC_APB2ENR; /* the peripheral may be touched two cycles later */
}

/* --- counter ---------------------------------------------------------------------------------- */

static bool has_timer;
static uint64_t counted;

/* SysTick alone where the chip is emulated: under QEMU's `-icount sleep=off` it falls behind other
 * clocks while the core sleeps. */
void stm32f4_counter_init(void) {
    has_timer = !is_emulated();
    if (has_timer) {
        stm32f4_enable(APB1_TIM2, 0);
        TIM2_CR1 = TIM2_ENABLE;
    }
    systick_init(STM32F4_CLOCK_HZ);
}

/* Timers of a bus that is slower than the core run at twice the bus's clock. */
uint32_t stm32f4_counter_hz(void) {
    return has_timer ? STM32F4_CLOCK_HZ / CYCLES_OF_TIMER : STM32F4_CLOCK_HZ;
}

/* What passed since it was read last is less than the timer's range, 51 s: SysTick sees to it. */
static uint64_t read_timer(void) {
    const uint32_t masked = cpu_mask();
    counted += TIM2_CNT - (uint32_t)counted;
    const uint64_t now = counted;
    cpu_restore(masked);
    return now;
}

uint64_t stm32f4_counter(void) {
    return has_timer ? read_timer() : systick_counter();
}

void board_systick_interrupt(void) {
    systick_interrupt();
    if (has_timer) {
        read_timer();
    }
}

void stm32f4_counter_sleep(uint64_t until) {
    const uint64_t now = stm32f4_counter();
    if (now < until) {
        const uint32_t cycles = has_timer ? CYCLES_OF_TIMER : 1;
        systick_sleep(systick_counter() + (until - now) * cycles);
    }
    while (stm32f4_counter() < until) {
    }
}

/* --- GPIO ------------------------------------------------------------------------------------- */

static void set_field(volatile uint32_t *fields, unsigned index, unsigned bits, uint32_t value) {
    const uint32_t mask = ((1u << bits) - 1) << index * bits;
    *fields = (*fields & ~mask) | value << index * bits;
}

static void start_port(unsigned port) {
    RCC_AHB1ENR |= 1u << port;
    (void)RCC_AHB1ENR;
}

void stm32f4_output(unsigned port, unsigned pin) {
    start_port(port);
    set_field(&GPIO_OSPEEDR(port), pin, 2, SPEED_HIGH);
    set_field(&GPIO_MODER(port), pin, 2, MODE_OUTPUT);
}

/* With a pull-up: an open receive line reads as silence. */
void stm32f4_function(unsigned port, unsigned pin, unsigned function) {
    start_port(port);
    set_field(&GPIO_AFR(port, pin), pin % 8, 4, function);
    set_field(&GPIO_OSPEEDR(port), pin, 2, SPEED_HIGH);
    set_field(&GPIO_PUPDR(port), pin, 2, PULL_UP);
    set_field(&GPIO_MODER(port), pin, 2, MODE_FUNCTION);
}

void stm32f4_set(unsigned port, unsigned pin, bool high) {
    GPIO_BSRR(port) = 1u << (high ? pin : pin + 16);
}

/* --- USART ------------------------------------------------------------------------------------ */

void stm32f4_usart_init(uint32_t usart, uint32_t bus_hz, uint32_t baud) {
    USART_BRR(usart) = (bus_hz + baud / 2) / baud;
    USART_CR1(usart) = CR1_ENABLE_SEND_RECEIVE_INTERRUPT;
}

/* Reading the data clears errors as well: an overrun keeps the interrupt up without data. */
bool stm32f4_usart_receive(uint32_t usart, uint8_t *byte) {
    const uint32_t status = USART_SR(usart);
    if (!(status & (SR_RECEIVED | SR_ERRORS))) {
        return false;
    }
    *byte = (uint8_t)USART_DR(usart);
    return status & SR_RECEIVED;
}

void stm32f4_usart_send(uint32_t usart, uint8_t byte) {
    while (!(USART_SR(usart) & SR_SEND_EMPTY)) {
    }
    USART_DR(usart) = byte;
}

void stm32f4_usart_flush(uint32_t usart) {
    while (!(USART_SR(usart) & SR_SENT)) {
    }
}

/* --- SPI -------------------------------------------------------------------------------------- */

void stm32f4_spi_init(uint32_t spi, uint32_t divider) {
    const uint32_t rate = (uint32_t)__builtin_ctz(divider) - 1;
    SPI_CR1(spi) = 0;
    SPI_CR1(spi) = CR1_MASTER_SOFTWARE_SELECT | rate << 3;
    SPI_CR1(spi) |= CR1_ENABLE;
}

uint8_t stm32f4_spi_exchange(uint32_t spi, uint8_t byte) {
    SPI_DR(spi) = byte;
    while (!(SPI_SR(spi) & SPI_RECEIVED)) {
    }
    return (uint8_t)SPI_DR(spi);
}
