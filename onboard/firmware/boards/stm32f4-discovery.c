/* ST STM32F4-Discovery (STM32F407G-DISC1): STM32F407VG, Cortex-M4F at 168 MHz from an 8 MHz crystal.
 * Has never run on hardware here; all but pins, identity and thermometer is that of the Netduino
 * Plus 2, which ran in QEMU.
 *
 * The UART is USART2 on the header: PA2 sends, PA3 receives. An SD card, if there is one, is wired
 * to SPI2: PB13 clock, PB14 from the card, PB15 to the card, PB12 select. PE7 tells instruments when
 * a window is open. Sources: STM32F405xx/407xx data sheet DS8626 (pins, calibration of the
 * thermometer, 5.3.22 and 5.3.24); RM0090 (ADC, unique identity); board user manual UM1472.
 */
#include "../board.h"
#include "../chips/stm32f4.h"
#include "../cpu.h"
#include "../systick.h"
#include "message.h"

enum { SEND_PIN = 2, RECEIVE_PIN = 3, USART_FUNCTION = 7, SYNC_PIN = 7 };
enum { CARD_SELECT_PIN = 12, CARD_CLOCK_PIN = 13, CARD_OUT_PIN = 14, CARD_IN_PIN = 15 };
enum { SPI_FUNCTION = 5, SPI_BY_128 = 128 /* 328 kHz */, SPI_BY_4 = 4 /* 10.5 MHz */ };

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

BOARD_VECTORS = {[STM32F4_USART2_INTERRUPT] = jw_uart_interrupt};

void board_init(void) {
    stm32f4_start_clock(8000000);
    stm32f4_enable(STM32F4_APB1_USART2, STM32F4_APB2_ADC1);
    stm32f4_function(STM32F4_GPIO_A, SEND_PIN, USART_FUNCTION);
    stm32f4_function(STM32F4_GPIO_A, RECEIVE_PIN, USART_FUNCTION);
    stm32f4_output(STM32F4_GPIO_E, SYNC_PIN);
}

uint32_t board_clock_hz(void) {
    return STM32F4_CLOCK_HZ;
}

/* --- USART2 ----------------------------------------------------------------------------------- */

const uint8_t board_uart_interrupt_number = STM32F4_USART2_INTERRUPT;

void board_uart_init(uint32_t baud) {
    stm32f4_usart_init(STM32F4_USART2, STM32F4_APB1_HZ, baud);
}

bool board_uart_receive(uint8_t *byte) {
    return stm32f4_usart_receive(STM32F4_USART2, byte);
}

void board_uart_send(uint8_t byte) {
    stm32f4_usart_send(STM32F4_USART2, byte);
}

void board_uart_flush(void) {
    stm32f4_usart_flush(STM32F4_USART2);
}

/* --- counter ---------------------------------------------------------------------------------- */

const char board_counter_name[] = "tim2";

void board_counter_init(void) {
    stm32f4_counter_init();
}

uint32_t board_counter_hz(void) {
    return stm32f4_counter_hz();
}

uint64_t board_counter(void) {
    return stm32f4_counter();
}

void board_counter_sleep(uint64_t until) {
    stm32f4_counter_sleep(until);
}

/* --- instruments, identity, thermometer ------------------------------------------------------- */

const char board_sync_pin[] = "PE7";

void board_sync_line(bool high) {
    stm32f4_set(STM32F4_GPIO_E, SYNC_PIN, high);
}

void board_serial(char serial[BOARD_SERIAL_BYTES]) {
    jw_message message;
    jw_message_begin(&message, serial, BOARD_SERIAL_BYTES);
    for (unsigned n = 0; n < 3; n++) {
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

/* On for as long as it takes, since the converter draws more than a milliampere. Calibrated at a
 * supply of 3.3 V; the board has about 3 V, which the internal reference tells. */
long board_temperature_mc(void) {
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

/* --- SPI2 ------------------------------------------------------------------------------------- */

void board_spi_init(void) {
    stm32f4_enable(STM32F4_APB1_SPI2, 0);
    stm32f4_output(STM32F4_GPIO_B, CARD_SELECT_PIN);
    board_spi_select(false);
    stm32f4_function(STM32F4_GPIO_B, CARD_CLOCK_PIN, SPI_FUNCTION);
    stm32f4_function(STM32F4_GPIO_B, CARD_OUT_PIN, SPI_FUNCTION);
    stm32f4_function(STM32F4_GPIO_B, CARD_IN_PIN, SPI_FUNCTION);
    stm32f4_spi_init(STM32F4_SPI2, SPI_BY_128);
}

uint8_t board_spi_exchange(uint8_t byte) {
    return stm32f4_spi_exchange(STM32F4_SPI2, byte);
}

void board_spi_select(bool selected) {
    stm32f4_set(STM32F4_GPIO_B, CARD_SELECT_PIN, !selected);
}

void board_spi_fast(bool fast) {
    stm32f4_spi_init(STM32F4_SPI2, fast ? SPI_BY_4 : SPI_BY_128);
}
