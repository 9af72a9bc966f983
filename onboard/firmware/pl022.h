/* Arm's PrimeCell SPI port, 8 bits a frame, as a master that is polled. Source: PL022 TRM, DDI 0194.
 *
 * `port` is the address of its registers. Dividers are even, and divide the clock of the port. */
#ifndef JW_PL022_H
#define JW_PL022_H

#include <stdint.h>

#include "cpu.h"

#define PL022_CONTROL0(port) REG32(port)
#define PL022_CONTROL1(port) REG32((port) + 0x04)
#define PL022_DATA(port) REG32((port) + 0x08)
#define PL022_STATUS(port) REG32((port) + 0x0C)
#define PL022_PRESCALE(port) REG32((port) + 0x10)
#define PL022_8_BITS 7u
#define PL022_ENABLE 2u
#define PL022_RECEIVED 4u

static inline void pl022_set_divider(uint32_t port, uint32_t divider) {
    PL022_CONTROL1(port) = 0;
    PL022_PRESCALE(port) = divider;
    PL022_CONTROL1(port) = PL022_ENABLE;
}

static inline void pl022_init(uint32_t port, uint32_t divider) {
    PL022_CONTROL1(port) = 0;
    PL022_CONTROL0(port) = PL022_8_BITS;
    pl022_set_divider(port, divider);
}

static inline uint8_t pl022_exchange(uint32_t port, uint8_t byte) {
    PL022_DATA(port) = byte;
    while (!(PL022_STATUS(port) & PL022_RECEIVED)) {
    }
    return (uint8_t)PL022_DATA(port);
}

#endif
