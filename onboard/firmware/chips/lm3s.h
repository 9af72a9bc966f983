/* Texas Instruments' Stellaris LM3S: what a board with one of them says in boards/lm3s/NAME.h. */
#ifndef JW_LM3S_H
#define JW_LM3S_H

#include <stdint.h>

/* As the clock configuration register names it. */
enum { LM3S_CRYSTAL_8_MHZ = 14 };

enum { LM3S_GPIO_A, LM3S_GPIO_B, LM3S_GPIO_C, LM3S_GPIO_D };

/* Some pins of a port, one bit each. */
typedef struct {
    uint32_t port, pins;
} lm3s_pins;

typedef struct {
    uint32_t crystal;
    uint32_t pll_divisor; /* of 200 MHz: the processor's clock */
    uint32_t ports;       /* those that the board uses, one bit each */
} lm3s_board;

extern const lm3s_board board_data;

/* An SD card at SSI0, for boards that have one. The dividers are of the processor's clock, and
 * even. */
typedef struct {
    uint32_t slow_divider, fast_divider;
    lm3s_pins select;
    lm3s_pins held_high[2]; /* pins of what shares the SPI port */
} lm3s_card;

extern const lm3s_card board_spi_card;

#endif
