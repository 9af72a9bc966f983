/* Arm MPS2 board with FPGA image AN386: a Cortex-M4F at 25 MHz, as QEMU's machine mps2-an386
 * emulates it. Has never run on hardware here.
 *
 * The board has no card slot. A card may be wired to its shield's SPI port, which emulated-m4f-sd
 * does in QEMU. Source: Arm application note AN386.
 */
#include "chips/cmsdk.h"

const cmsdk_board board_data = {
    .clock_hz = 25000000,
};

const cmsdk_psram board_external = {
    .address = 0x21000000,
    .bytes = 16u << 20,
};

const cmsdk_card board_spi_card = {
    .port = 0x40026000,
    .slow_divider = 64, /* 391 kHz */
    .fast_divider = 2,  /* 12.5 MHz */
};
