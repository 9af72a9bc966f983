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

#endif
