/* Functions that the firmware needs for every board. The description's `firmware.board` names a
 * file of data, boards/CHIP/NAME.h: pins, clock, UART. The chip's file, chips/CHIP.c, includes it
 * (JW_BOARD_DATA), so that the compiler folds the data into the code, and implements these
 * functions. docs/porting-a-board.md is the guide.
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

/* Set up clocks, and the pins that need no later change. */
void board_init(void);

/* Frequency of the processor after board_init; the description states the same. */
uint32_t board_clock_hz(void);

/* --- the UART, 8N1 ---------------------------------------------------------------------------- */

/* Number of the UART's interrupt in the interrupt controller. */
unsigned board_uart_interrupt_number(void);

/* Set up the UART with its interrupt on received bytes enabled; the caller enables it in the
 * interrupt controller. */
void board_uart_init(uint32_t baud);

/* Take the next received byte; false if there is none. Clears errors and the interrupt. */
bool board_uart_receive(uint8_t *byte);

/* Send a byte, after waiting for room. */
void board_uart_send(uint8_t byte);

/* Wait until the last bit has been sent. */
void board_uart_flush(void);

/* Interrupt handler for BOARD_VECTORS: takes all bytes of board_uart_receive. */
void jw_uart_interrupt(void);

/* --- may be left out -------------------------------------------------------------------------- */

/* Name of the counter from which the clock is derived. The default is SysTick at board_counter_hz,
 * by default board_clock_hz; systick.h says which chips need another. */
const char *board_counter_name(void);

/* Start the counter. */
void board_counter_init(void);

/* Frequency of the counter. */
uint32_t board_counter_hz(void);

/* Ticks so far; never wraps. */
uint64_t board_counter(void);

/* Sleep (WFI) until the counter reaches exactly this value. */
void board_counter_sleep(uint64_t until);

/* Sleep (WFI) with the counter at a standstill, until another interrupt is pending, also a masked
 * one; called with interrupts masked. Only for boards that may be emulated. */
void board_counter_wait(void);

/* Interrupt handler of SysTick; the default is that of systick.h. */
void board_systick_interrupt(void);

/* Name of the pin that shows instruments when a window is open; NULL without one. */
const char *board_sync_pin(void);

/* Drive that pin. */
void board_sync_line(bool high);

/* The chip's unique identity in hexadecimal, with a final zero; "" if it has none. */
#define BOARD_SERIAL_BYTES 33
void board_serial(char serial[BOARD_SERIAL_BYTES]);

/* Temperature in millidegrees Celsius; 0 if the chip has no useful sensor. */
long board_temperature_mc(void);

/* --- for boards with external RAM, without a default ------------------------------------------ */

/* Start and size of the RAM on the external bus, which the linker script does not use. */
unsigned char *board_psram(uint32_t *bytes);

/* --- for boards with an SD card on SPI, without defaults -------------------------------------- */

/* Set up SPI: mode 0, at most 400 kHz, card not selected. */
void board_spi_init(void);

/* Send a byte, and return the byte received meanwhile. */
uint8_t board_spi_exchange(uint8_t byte);

/* Drive card select, which is low while selected. */
void board_spi_select(bool selected);

/* Set the clock: as fast as card and board allow, at most 25 MHz; or at most 400 kHz. */
void board_spi_fast(bool fast);

#endif
