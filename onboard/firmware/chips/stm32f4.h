/* What the boards with an STM32F405 or F407 have in common: clock tree, counter, USART, GPIO and
 * SPI. */
#ifndef JW_STM32F4_H
#define JW_STM32F4_H

#include <stdbool.h>
#include <stdint.h>

#define STM32F4_CLOCK_HZ 168000000u
#define STM32F4_APB1_HZ (STM32F4_CLOCK_HZ / 4)
#define STM32F4_APB2_HZ (STM32F4_CLOCK_HZ / 2)

enum { STM32F4_USART1_INTERRUPT = 37, STM32F4_USART2_INTERRUPT = 38 };

#define STM32F4_GPIO_A 0u /* ports by number */
#define STM32F4_GPIO_B 1u
#define STM32F4_GPIO_E 4u

#define STM32F4_USART1 0x40011000u
#define STM32F4_USART2 0x40004400u
#define STM32F4_SPI2 0x40003800u

#define STM32F4_APB1_USART2 (1u << 17)
#define STM32F4_APB1_SPI2 (1u << 14)
#define STM32F4_APB2_USART1 (1u << 4)
#define STM32F4_APB2_ADC1 (1u << 8)

/* 168 MHz from the crystal, which is of whole megahertz; the flash behind its caches. */
void stm32f4_start_clock(uint32_t crystal_hz);

/* Behind board.h's counter: a timer of 32 bits, since SysTick would wrap many times in the seconds
 * for which the processor stands still while flash is erased. SysTick ends sleep. */
void stm32f4_counter_init(void);
uint32_t stm32f4_counter_hz(void);
uint64_t stm32f4_counter(void);
void stm32f4_counter_sleep(uint64_t until);

void stm32f4_enable(uint32_t apb1, uint32_t apb2);

/* The pin becomes an output, or one of the chip's functions. Its port is switched on. */
void stm32f4_output(unsigned port, unsigned pin);
void stm32f4_function(unsigned port, unsigned pin, unsigned function);
void stm32f4_set(unsigned port, unsigned pin, bool high);

void stm32f4_usart_init(uint32_t usart, uint32_t bus_hz, uint32_t baud);
bool stm32f4_usart_receive(uint32_t usart, uint8_t *byte);
void stm32f4_usart_send(uint32_t usart, uint8_t byte);
void stm32f4_usart_flush(uint32_t usart);

/* `divider` of the bus clock: 2, 4, ... 256. */
void stm32f4_spi_init(uint32_t spi, uint32_t divider);
uint8_t stm32f4_spi_exchange(uint32_t spi, uint8_t byte);

#endif
