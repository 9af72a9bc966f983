/* Arm MPS2 board with FPGA image AN386: a Cortex-M4F at 25 MHz, as QEMU's machine mps2-an386
 * emulates it. Has never run on hardware here.
 *
 * Source: Arm application note AN386.
 */
#include "chips/cmsdk.h"

const cmsdk_board board_data = {
    .clock_hz = 25000000,
};
