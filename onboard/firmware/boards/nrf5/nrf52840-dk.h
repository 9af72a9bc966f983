/* Nordic nRF52840 DK (PCA10056): Cortex-M4F at 64 MHz. Has never run on hardware here; it shares
 * UART and timer with the micro:bit, which ran in QEMU.
 *
 * The UART is connected to the debugger on the board, and from there to USB. Sources: nRF52840
 * Product Specification 1.7; nRF52840 DK Hardware user guide (P0.06 and P0.08 to the debugger;
 * P1.10 on the Arduino header, D8).
 */
#include "chips/nrf5.h"

const nrf5_board board_data = {
    .series = NRF52,
    .has_dcdc_coil = true,
    .send = NRF5_PIN(0, 6),
    .receive = NRF5_PIN(0, 8),
    .sync = NRF5_PIN(1, 10),
    .sync_name = "P1.10",
};
