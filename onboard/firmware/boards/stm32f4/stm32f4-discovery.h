/* ST STM32F4-Discovery (STM32F407G-DISC1): STM32F407VG, Cortex-M4F at 168 MHz from an 8 MHz
 * crystal. Has never run on hardware here; all code except that for pins, identity and
 * thermometer is that of the Netduino Plus 2, which ran in QEMU.
 *
 * The UART is USART2 on the header: PA2 sends, PA3 receives. An SD card, if there is one, is wired
 * to SPI2: PB13 clock, PB14 from the card, PB15 to the card, PB12 select. PE7 shows instruments
 * when a window is open. Sources: STM32F405xx/407xx data sheet DS8626 (pins); board user manual
 * UM1472. */
#include "chips/stm32f4.h"

const stm32f4_board board_data = {
    .crystal_hz = 8000000,
    .usart = STM32F4_USART2,
    .send = {STM32F4_GPIO_A, 2},
    .receive = {STM32F4_GPIO_A, 3},
    .sync = {STM32F4_GPIO_E, 7},
    .sync_name = "PE7",
};

const stm32f4_card board_spi_card = {
    .spi = STM32F4_SPI2,
    .slow_divider = 128, /* 328 kHz */
    .fast_divider = 4,   /* 10.5 MHz */
    .select = {STM32F4_GPIO_B, 12},
    .clock = {STM32F4_GPIO_B, 13},
    .from_card = {STM32F4_GPIO_B, 14},
    .to_card = {STM32F4_GPIO_B, 15},
};
