/* Data of a board, in boards/lm3s/NAME.h, for Texas Instruments' Stellaris LM3S. */
#ifndef JW_LM3S_H
#define JW_LM3S_H

#include <stdint.h>

/* Value in the clock configuration register. */
enum { LM3S_CRYSTAL_8_MHZ = 14 };

enum { LM3S_GPIO_A, LM3S_GPIO_B, LM3S_GPIO_C, LM3S_GPIO_D };

/* Some pins of a port, one bit each. */
typedef struct {
    uint32_t port, pins;
} lm3s_pins;

typedef struct {
    uint32_t crystal;
    uint32_t pll_divisor; /* the processor's clock is 200 MHz over this */
    uint32_t ports;       /* ports that the board uses, one bit each */
} lm3s_board;

extern const lm3s_board board_data;

/* An SD card at SSI0, for boards that have one. The dividers divide the processor's clock and are
 * even. */
typedef struct {
    uint32_t slow_divider, fast_divider;
    lm3s_pins select;
    lm3s_pins held_high[2]; /* pins of other devices on the SPI port */
} lm3s_card;

extern const lm3s_card board_spi_card;

#endif
