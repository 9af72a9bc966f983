#include "link.h"

#include <stdbool.h>

#include "board.h"
#include "cpu.h"

#define HEADER_BYTES 9
#define CRC_BYTES 4
#define MOST_BYTES (HEADER_BYTES + JW_FRAME_BYTES + CRC_BYTES)
#define COBS_BLOCK 254

/* Room for JW_WINDOW frames, each with its COBS codes and zeros. */
#define RING_BYTES (JW_WINDOW * (MOST_BYTES + MOST_BYTES / COBS_BLOCK + 3) + 1)

/* Volatile like its ends, so that a byte is read before its place is freed. */
static volatile uint8_t ring[RING_BYTES];
static volatile uint32_t ring_head; /* the interrupt writes here */
static volatile uint32_t ring_tail; /* the program reads here */

static uint8_t decoded[MOST_BYTES];

/* State of the COBS decoder. A block is a code and the bytes after it, of which there are one less
 * than the code; a block that is not full stands for its bytes and a zero. */
static struct {
    size_t count;
    uint8_t code, left;
    bool broken;
} decoder;

static struct {
    uint8_t block[COBS_BLOCK];
    uint8_t count;
    uint32_t crc;
} encoder;

/* --- bytes ------------------------------------------------------------------------------------ */

static uint32_t after(uint32_t place) {
    return place + 1 < RING_BYTES ? place + 1 : 0;
}

/* Bytes that do not fit are lost, which the frame's CRC reveals. */
void jw_uart_interrupt(void) {
    uint8_t byte;
    while (board_uart_receive(&byte)) {
        const uint32_t next = after(ring_head);
        if (next != ring_tail) {
            ring[ring_head] = byte;
            ring_head = next;
        }
    }
}

/* An emulator keeps a processor busy as long as a timer runs. Nobody asks an emulated board for the
 * time while it waits. */
static void wait(void) {
#ifdef JW_EMULATED
    board_counter_wait();
#else
    cpu_sleep();
#endif
}

static uint8_t next_byte(void) {
    while (ring_tail == ring_head) {
        const uint32_t masked = cpu_mask();
        if (ring_tail == ring_head) {
            wait();
        }
        cpu_restore(masked);
    }
    const uint8_t byte = ring[ring_tail];
    ring_tail = after(ring_tail);
    return byte;
}

static uint32_t crc_with(uint32_t crc, uint8_t byte) { /* four bits at a time */
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    crc ^= byte;
    crc = crc >> 4 ^ table[crc & 15];
    return crc >> 4 ^ table[crc & 15];
}

static uint16_t read16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

/* --- receiving -------------------------------------------------------------------------------- */

static void start_decoder(void) {
    decoder.count = 0;
    decoder.code = COBS_BLOCK + 1;
    decoder.left = 0;
    decoder.broken = false;
}

static void decode_to(uint8_t byte) {
    if (decoder.count < MOST_BYTES) {
        decoded[decoder.count++] = byte;
    } else {
        decoder.broken = true;
    }
}

static void decode(uint8_t byte) {
    if (decoder.left) {
        decoder.left--;
        decode_to(byte);
        return;
    }
    if (decoder.code <= COBS_BLOCK) {
        decode_to(0);
    }
    decoder.code = byte;
    decoder.left = (uint8_t)(byte - 1);
}

static bool is_whole(void) {
    if (decoder.broken || decoder.left || decoder.count < HEADER_BYTES + CRC_BYTES ||
        decoder.count - HEADER_BYTES - CRC_BYTES != read16(decoded + 7)) {
        return false;
    }
    /* The CRC over any frame with its own CRC is this constant. */
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < decoder.count; i++) {
        crc = crc_with(crc, decoded[i]);
    }
    return crc == 0xDEBB20E3;
}

void jw_link_receive(jw_frame *frame) {
    bool whole = false;
    start_decoder();
    while (!whole) {
        const uint8_t byte = next_byte();
        if (byte) {
            decode(byte);
            continue;
        }
        whole = is_whole();
        *frame = (jw_frame){
            .kind = decoded[0],
            .session = read16(decoded + 1),
            .sequence = read16(decoded + 3),
            .most = read16(decoded + 5),
            .length = read16(decoded + 7),
            .payload = decoded + HEADER_BYTES,
        };
        start_decoder();
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

static void send_block(void) {
    board_uart_send((uint8_t)(encoder.count + 1));
    for (uint8_t i = 0; i < encoder.count; i++) {
        board_uart_send(encoder.block[i]);
    }
    encoder.count = 0;
}

static void encode(uint8_t byte) {
    if (encoder.count == COBS_BLOCK) {
        send_block();
    }
    if (byte) {
        encoder.block[encoder.count++] = byte;
    } else {
        send_block();
    }
}

static void encode_all(const void *data, size_t bytes) {
    const uint8_t *byte = data;
    for (; bytes; bytes--, byte++) {
        encoder.crc = crc_with(encoder.crc, *byte);
        encode(*byte);
    }
}

static void encode16(uint32_t value) {
    const uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    encode_all(bytes, 2);
}

void jw_link_send(const jw_frame *header, const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes) {
    board_uart_send(0);
    encoder.count = 0;
    encoder.crc = 0xFFFFFFFF;
    encode_all(&header->kind, 1);
    encode16(header->session);
    encode16(header->sequence);
    encode16(0);
    encode16((uint32_t)(first_bytes + second_bytes));
    encode_all(first, first_bytes);
    encode_all(second, second_bytes);
    const uint32_t crc = ~encoder.crc;
    encode16(crc);
    encode16(crc >> 16);
    send_block();
    board_uart_send(0);
}

/* --- silence ---------------------------------------------------------------------------------- */

void jw_link_init(void) {
    board_uart_init(JW_BAUD);
    cpu_interrupt_enable(board_uart_interrupt_number());
}

void jw_link_silence(void) {
    board_uart_flush();
    cpu_interrupt_disable(board_uart_interrupt_number());
}

void jw_link_listen(void) {
    uint8_t byte;
    while (board_uart_receive(&byte)) {
    }
    ring_tail = ring_head;
    cpu_interrupt_enable(board_uart_interrupt_number());
}
