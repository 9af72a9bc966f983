/* Data of a board, in boards/stm32f4/NAME.h, for ST's STM32F405 and F407. */
#ifndef JW_STM32F4_H
#define JW_STM32F4_H

#include <stdbool.h>
#include <stdint.h>

#define STM32F4_CLOCK_HZ 168000000u
#define STM32F4_APB1_HZ (STM32F4_CLOCK_HZ / 4)
#define STM32F4_APB2_HZ (STM32F4_CLOCK_HZ / 2)

enum {
    STM32F4_GPIO_A,
    STM32F4_GPIO_B,
    STM32F4_GPIO_C,
    STM32F4_GPIO_D,
    STM32F4_GPIO_E,
};

enum { STM32F4_USART1_INTERRUPT = 37, STM32F4_USART2_INTERRUPT = 38 };

/* A pin; PE7 is {STM32F4_GPIO_E, 7}. */
typedef struct {
    uint8_t port, number;
} stm32f4_pin;

typedef struct {
    uint32_t registers;  /* address of the registers */
    uint32_t bus_hz;     /* clock of the bus, for USARTs */
    uint32_t apb1, apb2; /* the bit in the clock gates of its bus */
    uint8_t function;    /* alternate function of its pins */
    uint8_t interrupt;   /* number, for USARTs */
} stm32f4_peripheral;

#define STM32F4_USART1                                                                             \
    {.registers = 0x40011000,                                                                      \
     .bus_hz = STM32F4_APB2_HZ,                                                                    \
     .apb2 = 1u << 4,                                                                              \
     .function = 7,                                                                                \
     .interrupt = STM32F4_USART1_INTERRUPT}
#define STM32F4_USART2                                                                             \
    {.registers = 0x40004400,                                                                      \
     .bus_hz = STM32F4_APB1_HZ,                                                                    \
     .apb1 = 1u << 17,                                                                             \
     .function = 7,                                                                                \
     .interrupt = STM32F4_USART2_INTERRUPT}
#define STM32F4_SPI2 {.registers = 0x40003800, .apb1 = 1u << 14, .function = 5}

typedef struct {
    uint32_t crystal_hz; /* whole megahertz */
    bool runs_in_qemu;   /* without identity and thermometer, which are then not read */
    stm32f4_peripheral usart;
    stm32f4_pin send, receive, sync;
    const char *sync_name; /* NULL: the board has no sync pin */
} stm32f4_board;

extern const stm32f4_board board_data;

/* An SD card, for boards that have one. The dividers divide the bus clock: 2, 4, ... 256. */
typedef struct {
    stm32f4_peripheral spi;
    uint16_t slow_divider, fast_divider;
    stm32f4_pin select, clock, from_card, to_card;
} stm32f4_card;

extern const stm32f4_card board_spi_card;

#endif
