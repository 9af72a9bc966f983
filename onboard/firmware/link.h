/* Frames over the UART, as docs/serial-protocol.md has them. */
#ifndef JW_LINK_H
#define JW_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "sizes.h"

typedef struct {
    uint8_t kind;
    uint16_t session, sequence, most, length;
    const uint8_t *payload; /* until the next frame is received */
} jw_frame;

void jw_link_init(void);

/* Waits, asleep, for the next frame that came over whole. */
void jw_link_receive(jw_frame *frame);

/* `most` is 0. The payload comes in two parts. */
void jw_link_send(const jw_frame *header, const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes);

/* Waits until everything sent has left, and hears nothing from then on. */
void jw_link_silence(void);

/* Hears again; what came meanwhile is lost. */
void jw_link_listen(void);

#endif
