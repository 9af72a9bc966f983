/* Data of a board, in boards/nrf5/NAME.h, for Nordic's nRF51 and nRF52. */
#ifndef JW_NRF5_H
#define JW_NRF5_H

#include <stdbool.h>
#include <stdint.h>

/* Number of a pin; P1.10 is NRF5_PIN(1, 10). */
#define NRF5_PIN(port, number) (32 * (port) + (number))

typedef enum { NRF51, NRF52 } nrf5_series;

typedef struct {
    nrf5_series series;
    bool has_dcdc_coil; /* the board has the coil that the DC/DC converter needs */
    uint8_t send, receive, sync;
    const char *sync_name; /* NULL: the board has no sync pin */
} nrf5_board;

extern const nrf5_board board_data;

#endif
