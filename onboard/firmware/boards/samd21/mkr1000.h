/* Arduino MKR1000 WiFi: Microchip SAMD21G18A, Cortex-M0+ at 48 MHz from the board's 32,768 Hz
 * crystal. Compiled, but never run: there is no emulator of this chip.
 *
 * The UART is Serial1 of the header: D14 sends, D13 receives, at 3.3 V; the USB socket belongs to
 * the boot loader, which a double press of the reset button enters. An SD card is wired as on the
 * MKR SD Proto and MKR MEM shields: D9 clock, D10 from the card, D8 to the card, D4 select. D7
 * shows instruments when a window is open. The radio is held in reset.
 *
 * Sources: SAM D21 data sheet DS40001882 (multiplexing); pin table of the Arduino variant mkr1000.
 */
#include "chips/samd21.h"

const samd21_board board_data = {
    .uart = {.sercom = 5, .pads = SAMD21_SEND_ON_2_RECEIVE_ON_3},
    .send = {SAMD21_GROUP_B, 22, SAMD21_FUNCTION_D},
    .receive = {SAMD21_GROUP_B, 23, SAMD21_FUNCTION_D},
    .sync = {SAMD21_GROUP_A, 21},
    .sync_name = "D7",
    .held_low = {[SAMD21_GROUP_A] = 1u << 27 | 1u << 28}, /* the radio's reset and enable */
};

const samd21_card board_spi_card = {
    .spi = {.sercom = 1, .pads = SAMD21_OUT_ON_0_IN_ON_3},
    .slow_baud = 60, /* 393 kHz: half of the clock over slow_baud + 1 */
    .fast_baud = 1,  /* 12 MHz */
    .select = {SAMD21_GROUP_B, 10},
    .to_card = {SAMD21_GROUP_A, 16, SAMD21_FUNCTION_C},
    .clock = {SAMD21_GROUP_A, 17, SAMD21_FUNCTION_C},
    .from_card = {SAMD21_GROUP_A, 19, SAMD21_FUNCTION_C},
};
