/* Data of a board, in boards/cmsdk/NAME.h, for FPGA images with the peripherals of Arm's Cortex-M
 * System Design Kit. */
#ifndef JW_CMSDK_H
#define JW_CMSDK_H

#include <stdint.h>

typedef struct {
    uint32_t clock_hz;
} cmsdk_board;

extern const cmsdk_board board_data;

/* RAM on the external bus, for boards that have some. */
typedef struct {
    uint32_t address, bytes;
} cmsdk_psram;

extern const cmsdk_psram board_external;

/* An SD card at the PL022 with the address `port`, for boards that have one. It is the only device
 * there and always selected: no pin of the images is a chip select. The dividers divide the
 * processor's clock and are even. */
typedef struct {
    uint32_t port;
    uint32_t slow_divider, fast_divider;
} cmsdk_card;

extern const cmsdk_card board_spi_card;

#endif
