/* Frames over the UART, defined in docs/serial-protocol.md. */
#ifndef JW_LINK_H
#define JW_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "sizes.h"

/* A frame; `most` is the longest payload of its answer. */
typedef struct {
    uint8_t kind;
    uint16_t session, sequence, most, length;
    const uint8_t *payload; /* valid until the next frame is received */
} jw_frame;

/* Set up the UART. */
void jw_link_init(void);

/* Sleep until the next valid frame is received. */
void jw_link_receive(jw_frame *frame);

/* Send a frame; its payload is in two parts, and its `most` is 0. */
void jw_link_send(const jw_frame *header, const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes);

/* Wait until all bytes have been sent, then stop receiving. */
void jw_link_silence(void);

/* Receive again; bytes that arrived meanwhile are lost. */
void jw_link_listen(void);

#endif
