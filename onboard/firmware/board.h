/* What the firmware asks of every board. The description's `firmware.board` names a page of data,
 * boards/CHIP/NAME.h: pins, clock, UART. The file of its chip, chips/CHIP.c, is compiled with that
 * page (JW_BOARD_DATA), so that the data folds into its code, and implements these functions.
 * docs/porting-a-board.md takes you through it.
 *
 * Functions marked "may be left out" have defaults in board_defaults.c.
 */
#ifndef JW_BOARD_H
#define JW_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- start ------------------------------------------------------------------------------------ */

/* The chip's interrupt vectors, after the core's sixteen:
 *     BOARD_VECTORS = {[UART_INTERRUPT] = jw_uart_interrupt}; */
typedef void board_vector(void);
#define BOARD_VECTORS                                                                              \
    __attribute__((section(".vectors.board"), used)) board_vector *const board_vectors[]

/* Clocks, and the pins that need no more than being set up once. */
void board_init(void);

/* Of the processor, as board_init has left it and the description says it. */
uint32_t board_clock_hz(void);

/* --- the UART, 8N1 ---------------------------------------------------------------------------- */

/* In the interrupt controller. */
unsigned board_uart_interrupt_number(void);

/* Interrupts on received bytes are on at the UART afterwards, and left to the caller at the
 * interrupt controller. */
void board_uart_init(uint32_t baud);

/* The next byte that was received; false if there is none. Clears errors and the interrupt. */
bool board_uart_receive(uint8_t *byte);

/* Waits until there is room. */
void board_uart_send(uint8_t byte);

/* Waits until the last bit has left. */
void board_uart_flush(void);

/* For BOARD_VECTORS: takes all that board_uart_receive has. */
void jw_uart_interrupt(void);

/* --- may be left out -------------------------------------------------------------------------- */

/* The counter that the clock is made of. By default SysTick at board_counter_hz, which is by
 * default board_clock_hz; systick.h says which chips need another. */
const char *board_counter_name(void);

void board_counter_init(void);

uint32_t board_counter_hz(void);

/* Counts upwards without end. */
uint64_t board_counter(void);

/* Sleeps (WFI) until the counter has come so far, exactly. */
void board_counter_sleep(uint64_t until);

/* By default that of systick.h, and nothing more. */
void board_systick_interrupt(void);

/* The pin that tells instruments when a window is open; NULL: there is none. */
const char *board_sync_pin(void);
void board_sync_line(bool high);

/* The chip's unique identity in hexadecimal, with the final zero; "" where it has none. */
#define BOARD_SERIAL_BYTES 33
void board_serial(char serial[BOARD_SERIAL_BYTES]);

/* In millidegrees Celsius; 0 where the chip has no sensor that is worth reading. */
long board_temperature_mc(void);

/* --- for boards with an SD card on SPI, without defaults -------------------------------------- */

/* Mode 0, not faster than 400 kHz, card not selected. */
void board_spi_init(void);

/* Sends a byte and returns the one received meanwhile. */
uint8_t board_spi_exchange(uint8_t byte);

/* Card select is low while selected. */
void board_spi_select(bool selected);

/* As fast as card and board allow, 25 MHz at most, or again 400 kHz at most. */
void board_spi_fast(bool fast);

#endif
