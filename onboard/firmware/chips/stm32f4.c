/* The counter is a timer with 32 bits, since SysTick would wrap many times while the processor
 * stops for seconds to erase flash. SysTick ends sleep.
 *
 * Sources: reference manual RM0090, "RCC", "General-purpose timers (TIM2 to TIM5)", "USART",
 * "GPIO", "SPI", "ADC", "Flash interface", "Device electronic signature"; data sheet DS8626
 * (calibration of the thermometer, 5.3.22 and 5.3.24). */
#include "stm32f4.h"

#include JW_BOARD_DATA
#include "board.h"
#include "cpu.h"
#include "message.h"
#include "systick.h"

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
#define APB2_ADC1 (1u << 8)

#define TIM2_CR1 REG32(0x40000000)
#define TIM2_ENABLE 1u
#define TIM2_CNT REG32(0x40000024)
#define CYCLES_OF_TIMER 2u /* core cycles in a tick of the timer */

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

#define USART_SR REG32(board_data.usart.registers)
#define SR_ERRORS 0xFu
#define SR_RECEIVED (1u << 5)
#define SR_SENT (1u << 6)
#define SR_SEND_EMPTY (1u << 7)
#define USART_DR REG32(board_data.usart.registers + 0x04)
#define USART_BRR REG32(board_data.usart.registers + 0x08)
#define USART_CR1 REG32(board_data.usart.registers + 0x0C)
#define CR1_ENABLE_SEND_RECEIVE_INTERRUPT (1u << 13 | 1u << 3 | 1u << 2 | 1u << 5)

#define SPI_CR1 REG32(board_spi_card.spi.registers)
#define CR1_MASTER_SOFTWARE_SELECT (1u << 2 | 1u << 8 | 1u << 9)
#define CR1_ENABLE (1u << 6)
#define SPI_SR REG32(board_spi_card.spi.registers + 0x08)
#define SPI_RECEIVED 1u
#define SPI_DR REG32(board_spi_card.spi.registers + 0x0C)

#define UNIQUE_ID(n) REG32(0x1FFF7A10 + 4 * (n))
#define REFERENCE_AT_3V3 REG16(0x1FFF7A2A)
#define SENSOR_AT_30C REG16(0x1FFF7A2C)
#define SENSOR_AT_110C REG16(0x1FFF7A2E)

#define ADC1_SR REG32(0x40012000)
#define ADC1_CONVERTED 2u
#define ADC1_CR2 REG32(0x40012008)
#define CR2_ON 1u
#define CR2_START (1u << 30)
#define ADC1_SMPR1 REG32(0x4001200C)
#define SMPR1_LONGEST_FOR_16_AND_17 (7u << 18 | 7u << 21)
#define ADC1_SQR3 REG32(0x40012034)
#define ADC1_DR REG32(0x4001204C)
#define ADC_CCR REG32(0x40012304)
#define CCR_BY_4 (1u << 16)
#define CCR_SENSOR_AND_REFERENCE (1u << 23)
enum { SENSOR_CHANNEL = 16, REFERENCE_CHANNEL = 17, SENSOR_START_US = 10 };

/* A USART that the board does not use raises no interrupt. */
BOARD_VECTORS = {
    [STM32F4_USART1_INTERRUPT] = jw_uart_interrupt,
    [STM32F4_USART2_INTERRUPT] = jw_uart_interrupt,
};

/* --- GPIO ------------------------------------------------------------------------------------- */

static void set_field(volatile uint32_t *fields, unsigned index, unsigned bits, uint32_t value) {
    const uint32_t mask = ((1u << bits) - 1) << index * bits;
    *fields = (*fields & ~mask) | value << index * bits;
}

static void start_port(unsigned port) {
    RCC_AHB1ENR |= 1u << port;
    (void)RCC_AHB1ENR;
}

static void make_output(stm32f4_pin pin) {
    start_port(pin.port);
    set_field(&GPIO_OSPEEDR(pin.port), pin.number, 2, SPEED_HIGH);
    set_field(&GPIO_MODER(pin.port), pin.number, 2, MODE_OUTPUT);
}

/* Pulled up, so that an open receive line reads as idle. */
static void connect(stm32f4_pin pin, stm32f4_peripheral peripheral) {
    start_port(pin.port);
    set_field(&GPIO_AFR(pin.port, pin.number), pin.number % 8, 4, peripheral.function);
    set_field(&GPIO_OSPEEDR(pin.port), pin.number, 2, SPEED_HIGH);
    set_field(&GPIO_PUPDR(pin.port), pin.number, 2, PULL_UP);
    set_field(&GPIO_MODER(pin.port), pin.number, 2, MODE_FUNCTION);
}

static void set_pin(stm32f4_pin pin, bool high) {
    GPIO_BSRR(pin.port) = 1u << (high ? pin.number : pin.number + 16);
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

/* After a reset the chip's own oscillator is on, so this register is never zero. QEMU has no clock
 * controller, reads zero here, and runs its core at 168 MHz from the start. */
static bool is_emulated(void) {
    return RCC_CR == 0;
}

/* Start the clock of 168 MHz from the crystal, and enable the caches of the flash. */
static void start_clock(void) {
    if (is_emulated()) {
        return;
    }
    RCC_CR |= CR_CRYSTAL_ON;
    while (!(RCC_CR & CR_CRYSTAL_READY)) {
    }
    FLASH_ACR = ACR_5_WAIT_STATES_PREFETCH_CACHES;
    RCC_CFGR = CFGR_APB1_BY_4_APB2_BY_2;
    /* 1 MHz times 336, divided by 2 for the core and by 7 for USB's 48 MHz. */
    RCC_PLLCFGR = board_data.crystal_hz / 1000000 | PLL_MULTIPLY(336u) | PLL_FROM_CRYSTAL |
                  PLL_USB_DIVIDE(7u);
    RCC_CR |= CR_PLL_ON;
    while (!(RCC_CR & CR_PLL_READY)) {
    }
    RCC_CFGR = CFGR_APB1_BY_4_APB2_BY_2 | CFGR_PLL;
    while ((RCC_CFGR & CFGR_RUNS_ON_MASK) != CFGR_RUNS_ON_PLL) {
    }
}

static void enable(uint32_t apb1, uint32_t apb2) {
    RCC_APB1ENR |= apb1;
    RCC_APB2ENR |= apb2;
    (void)RCC_APB2ENR; /* the peripheral may be accessed two cycles later */
}

void board_init(void) {
    const stm32f4_peripheral usart = board_data.usart;
    start_clock();
    enable(usart.apb1, usart.apb2 | (board_data.runs_in_qemu ? 0 : APB2_ADC1));
    connect(board_data.send, usart);
    connect(board_data.receive, usart);
    if (board_data.sync_name) {
        make_output(board_data.sync);
    }
}

uint32_t board_clock_hz(void) {
    return STM32F4_CLOCK_HZ;
}

/* --- counter ---------------------------------------------------------------------------------- */

static bool has_timer;
static uint64_t counted;

const char *board_counter_name(void) {
    return board_data.runs_in_qemu ? "tim2 (systick in QEMU)" : "tim2";
}

/* An emulated chip uses SysTick alone: with QEMU's `-icount sleep=off` it lags other clocks while
 * the core sleeps. */
void board_counter_init(void) {
    has_timer = !is_emulated();
    if (has_timer) {
        enable(APB1_TIM2, 0);
        TIM2_CR1 = TIM2_ENABLE;
    }
    systick_init(STM32F4_CLOCK_HZ);
}

/* Timers on a bus that is slower than the core run at twice the bus's clock. */
uint32_t board_counter_hz(void) {
    return has_timer ? STM32F4_CLOCK_HZ / CYCLES_OF_TIMER : STM32F4_CLOCK_HZ;
}

/* SysTick ensures that the timer is read at least once in its range of 51 s. */
static uint64_t read_timer(void) {
    const uint32_t masked = cpu_mask();
    counted += TIM2_CNT - (uint32_t)counted;
    const uint64_t now = counted;
    cpu_restore(masked);
    return now;
}

uint64_t board_counter(void) {
    return has_timer ? read_timer() : systick_counter();
}

void board_systick_interrupt(void) {
    systick_interrupt();
    if (has_timer) {
        read_timer();
    }
}

void board_counter_sleep(uint64_t until) {
    const uint64_t now = board_counter();
    if (now < until) {
        const uint32_t cycles = has_timer ? CYCLES_OF_TIMER : 1;
        systick_sleep(systick_counter() + (until - now) * cycles);
    }
    while (board_counter() < until) {
    }
}

/* --- USART ------------------------------------------------------------------------------------ */

unsigned board_uart_interrupt_number(void) {
    return board_data.usart.interrupt;
}

void board_uart_init(uint32_t baud) {
    USART_BRR = (board_data.usart.bus_hz + baud / 2) / baud;
    USART_CR1 = CR1_ENABLE_SEND_RECEIVE_INTERRUPT;
}

/* Reading the data also clears errors: an overrun keeps the interrupt pending without data. */
bool board_uart_receive(uint8_t *byte) {
    const uint32_t status = USART_SR;
    if (!(status & (SR_RECEIVED | SR_ERRORS))) {
        return false;
    }
    *byte = (uint8_t)USART_DR;
    return status & SR_RECEIVED;
}

void board_uart_send(uint8_t byte) {
    while (!(USART_SR & SR_SEND_EMPTY)) {
    }
    USART_DR = byte;
}

void board_uart_flush(void) {
    while (!(USART_SR & SR_SENT)) {
    }
}

/* --- identity and thermometer ----------------------------------------------------------------- */

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    jw_message message;
    jw_message_begin(&message, serial, BOARD_SERIAL_BYTES);
    for (unsigned n = 0; n < 3 && !board_data.runs_in_qemu; n++) {
        jw_message_bits(&message, UNIQUE_ID(n));
    }
}

static uint32_t converted(uint32_t channel) {
    ADC1_SQR3 = channel;
    ADC1_CR2 = CR2_ON | CR2_START;
    while (!(ADC1_SR & ADC1_CONVERTED)) {
    }
    return ADC1_DR;
}

/* The converter is on only while it is needed, since it draws more than a milliampere. The sensor
 * is calibrated at a supply of 3.3 V; the internal reference shows the board's real supply. */
long board_temperature_mc(void) {
    if (board_data.runs_in_qemu) {
        return 0;
    }
    ADC_CCR = CCR_BY_4 | CCR_SENSOR_AND_REFERENCE;
    ADC1_SMPR1 = SMPR1_LONGEST_FOR_16_AND_17;
    ADC1_CR2 = CR2_ON;
    systick_sleep(systick_counter() + SENSOR_START_US * (STM32F4_CLOCK_HZ / 1000000));
    const long reference = (long)converted(REFERENCE_CHANNEL);
    const long sensor = (long)converted(SENSOR_CHANNEL) * REFERENCE_AT_3V3 / reference;
    ADC1_CR2 = 0;
    ADC_CCR = CCR_BY_4;
    const long low = SENSOR_AT_30C, high = SENSOR_AT_110C;
    return 30000 + (sensor - low) * 80000 / (high - low);
}

/* --- SPI, for boards with a card -------------------------------------------------------------- */

void board_spi_init(void) {
    enable(board_spi_card.spi.apb1, board_spi_card.spi.apb2);
    make_output(board_spi_card.select);
    board_spi_select(false);
    connect(board_spi_card.clock, board_spi_card.spi);
    connect(board_spi_card.from_card, board_spi_card.spi);
    connect(board_spi_card.to_card, board_spi_card.spi);
    board_spi_fast(false);
}

uint8_t board_spi_exchange(uint8_t byte) {
    SPI_DR = byte;
    while (!(SPI_SR & SPI_RECEIVED)) {
    }
    return (uint8_t)SPI_DR;
}

void board_spi_select(bool selected) {
    set_pin(board_spi_card.select, !selected);
}

void board_spi_fast(bool fast) {
    const uint32_t divider = fast ? board_spi_card.fast_divider : board_spi_card.slow_divider;
    const uint32_t rate = (uint32_t)__builtin_ctz(divider) - 1;
    SPI_CR1 = 0;
    SPI_CR1 = CR1_MASTER_SOFTWARE_SELECT | rate << 3;
    SPI_CR1 |= CR1_ENABLE;
}
