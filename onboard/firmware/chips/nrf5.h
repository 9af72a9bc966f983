/* Nordic's nRF51 and nRF52: what a board with one of them says in boards/nrf5/NAME.h. */
#ifndef JW_NRF5_H
#define JW_NRF5_H

#include <stdbool.h>
#include <stdint.h>

/* P1.10 is NRF5_PIN(1, 10). */
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
