/* BBC micro:bit, first version: Nordic nRF51822, Cortex-M0 at 16 MHz. Ran in QEMU (microbit); has
 * never run on hardware here.
 *
 * The UART is connected to the interface chip, and from there to USB. Sources: nRF51822 Product
 * Specification 3.1; micro:bit 1.3 schematics (P0.24 and P0.25 to the interface chip, P0.03 to pad
 * 0 of the edge connector).
 */
#include "chips/nrf5.h"

const nrf5_board board_data = {
    .series = NRF51,
    .send = NRF5_PIN(0, 24),
    .receive = NRF5_PIN(0, 25),
    .sync = NRF5_PIN(0, 3),
    .sync_name = "P0.03",
};
