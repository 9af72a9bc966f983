/* What Nordic's nRF51 and nRF52 have in common: oscillator, UART, a 32-bit timer, identity. */
#ifndef JW_NRF5_H
#define JW_NRF5_H

#include "../board.h"

enum { NRF5_UART_INTERRUPT = 2, NRF5_TIMER0_INTERRUPT = 8 };

#define NRF5_TIMER_HZ 16000000u

/* Waits for the crystal: the oscillator that runs from reset is off by a percent or more. */
void nrf5_start_crystal(void);

/* Pins as the chips count them: 32 for P1.00. */
void nrf5_uart_init(unsigned send_pin, unsigned receive_pin, uint32_t baud);
bool nrf5_uart_receive(uint8_t *byte);
void nrf5_uart_send(uint8_t byte);

void nrf5_timer_init(void);
uint64_t nrf5_timer_counter(void);
void nrf5_timer_sleep(uint64_t until);
void nrf5_timer_interrupt(void);

void nrf5_output(unsigned pin);
void nrf5_set(unsigned pin, bool high);

void nrf5_serial(char serial[BOARD_SERIAL_BYTES]);

#endif
