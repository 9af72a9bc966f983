/* Data of a board, in boards/samd21/NAME.h, for Microchip's SAMD21 with a crystal of 32,768 Hz. */
#ifndef JW_SAMD21_H
#define JW_SAMD21_H

#include <stdint.h>

enum { SAMD21_GROUP_A, SAMD21_GROUP_B, SAMD21_GROUPS };
enum { SAMD21_FUNCTION_C = 2, SAMD21_FUNCTION_D = 3 };

/* A pin; PB22 is {SAMD21_GROUP_B, 22}. The function connects it to its SERCOM. */
typedef struct {
    uint8_t group, number, function;
} samd21_pin;

#define SAMD21_SEND_ON_2_RECEIVE_ON_3 (1u << 16 | 3u << 20)
#define SAMD21_OUT_ON_0_IN_ON_3 (3u << 20)

typedef struct {
    uint32_t sercom; /* number of the SERCOM */
    uint32_t pads;   /* functions of its pads */
} samd21_port;

typedef struct {
    samd21_port uart;
    samd21_pin send, receive, sync;
    const char *sync_name;            /* NULL: the board has no sync pin */
    uint32_t held_low[SAMD21_GROUPS]; /* outputs that stay low, one bit each */
} samd21_board;

extern const samd21_board board_data;

/* An SD card, for boards that have one. A baud of n is 24 MHz / (n + 1). */
typedef struct {
    samd21_port spi;
    uint8_t slow_baud, fast_baud;
    samd21_pin select, to_card, clock, from_card;
} samd21_card;

extern const samd21_card board_spi_card;

#endif
