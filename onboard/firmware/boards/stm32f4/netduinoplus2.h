/* Netduino Plus 2: ST STM32F405RG, Cortex-M4F at 168 MHz from a 25 MHz crystal. Ran in QEMU
 * (netduinoplus2, on USART1, which has no clock controller and no pins); has never run on hardware
 * here.
 *
 * Source: STM32F405xx data sheet DS8626 (USART1 on PA9 and PA10).
 */
#include "chips/stm32f4.h"

const stm32f4_board board_data = {
    .crystal_hz = 25000000,
    .runs_in_qemu = true,
    .usart = STM32F4_USART1,
    .send = {STM32F4_GPIO_A, 9},
    .receive = {STM32F4_GPIO_A, 10},
};
