/* Netduino Plus 2: ST STM32F405RG, Cortex-M4F at 168 MHz from a 25 MHz crystal. Ran in QEMU
 * (netduinoplus2, on USART1, which has no clock controller and no pins); has never run on hardware
 * here.
 *
 * Source: STM32F405xx data sheet DS8626 (USART1 on PA9 and PA10, function 7).
 */
#include "../board.h"
#include "../chips/stm32f4.h"

enum { SEND_PIN = 9, RECEIVE_PIN = 10, USART_FUNCTION = 7 };

BOARD_VECTORS = {[STM32F4_USART1_INTERRUPT] = jw_uart_interrupt};

void board_init(void) {
    stm32f4_start_clock(25000000);
    stm32f4_enable(0, STM32F4_APB2_USART1);
    stm32f4_function(STM32F4_GPIO_A, SEND_PIN, USART_FUNCTION);
    stm32f4_function(STM32F4_GPIO_A, RECEIVE_PIN, USART_FUNCTION);
}

uint32_t board_clock_hz(void) {
    return STM32F4_CLOCK_HZ;
}

const uint8_t board_uart_interrupt_number = STM32F4_USART1_INTERRUPT;

void board_uart_init(uint32_t baud) {
    stm32f4_usart_init(STM32F4_USART1, STM32F4_APB2_HZ, baud);
}

bool board_uart_receive(uint8_t *byte) {
    return stm32f4_usart_receive(STM32F4_USART1, byte);
}

void board_uart_send(uint8_t byte) {
    stm32f4_usart_send(STM32F4_USART1, byte);
}

void board_uart_flush(void) {
    stm32f4_usart_flush(STM32F4_USART1);
}

const char board_counter_name[] = "tim2 (systick in QEMU)";

void board_counter_init(void) {
    stm32f4_counter_init();
}

uint32_t board_counter_hz(void) {
    return stm32f4_counter_hz();
}

uint64_t board_counter(void) {
    return stm32f4_counter();
}

void board_counter_sleep(uint64_t until) {
    stm32f4_counter_sleep(until);
}
