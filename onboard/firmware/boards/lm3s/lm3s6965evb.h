/* Texas Instruments Stellaris LM3S6965 Evaluation Board: Cortex-M3 without floating-point unit,
 * here at 12.5 MHz from its PLL and an 8 MHz crystal. Ran in QEMU (lm3s6965evb); has never run on
 * hardware here.
 *
 * UART0 is connected to the debugger on the board, and from there to USB. The card slot shares its
 * SPI port with the display. QEMU selects the display whenever the card is not selected; the pin C7
 * makes it take the bytes as data, not as commands. Sources: LM3S6965 data sheet; LM3S6965
 * Evaluation Board user's manual.
 */
#include "chips/lm3s.h"

const lm3s_board board_data = {
    .crystal = LM3S_CRYSTAL_8_MHZ,
    .pll_divisor = 16,
    .ports = 1u << LM3S_GPIO_A | 1u << LM3S_GPIO_C | 1u << LM3S_GPIO_D,
};

const lm3s_card board_spi_card = {
    .slow_divider = 32, /* 391 kHz */
    .fast_divider = 2,  /* 6.25 MHz */
    .select = {LM3S_GPIO_D, 1u << 0},
    .held_high =
        {
            {LM3S_GPIO_A, 1u << 3}, /* the display is not selected */
            {LM3S_GPIO_C, 1u << 7}, /* and takes data */
        },
};
