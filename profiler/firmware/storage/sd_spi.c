/* SD cards in SPI mode: SD Specifications, Part 1, Physical Layer Simplified Specification, chapter
 * 7 (section numbers are those of version 9). SDSC, SDHC and SDXC; no MultiMediaCards.
 *
 * Ran against QEMU's card (ssi-sd) and against a stand-in that follows the specification more
 * closely than QEMU does, never against a card of plastic.
 */
#include <string.h>

#include "board.h"
#include "platform.h"
#include "storage.h"
#include "support/sd_registers.h"
#include "support/sentence.h"
#include "support/stretch.h"

#define MS UINT64_C(1000000)

/* Longest waits: 4.2.3 (initialisation), 4.6.2.1 (read), 4.6.2.2 (write; SDXC). */
#define RESET_NS (1000 * MS)
#define INITIALISATION_NS (1000 * MS)
#define READ_NS (200 * MS)
#define BUSY_NS (500 * MS)

enum { BLOCK_BYTES = 512, ANSWER_TRIES = 9 /* NCR: 0 to 8 bytes, 7.5.4 */ };

typedef enum {
    GO_IDLE_STATE = 0,
    SEND_IF_COND = 8,
    SEND_CSD = 9,
    SEND_CID = 10,
    STOP_TRANSMISSION = 12,
    SEND_STATUS = 13,
    SET_BLOCKLEN = 16,
    READ_SINGLE_BLOCK = 17,
    READ_MULTIPLE_BLOCK = 18,
    WRITE_BLOCK = 24,
    WRITE_MULTIPLE_BLOCK = 25,
    SD_SEND_OP_COND = 41, /* after APP_CMD */
    APP_CMD = 55,
    READ_OCR = 58,
    CRC_ON_OFF = 59,
} command;

/* Of R1, 7.3.2.1. */
enum { R1_READY = 0x00, R1_IDLE = 0x01, R1_ILLEGAL = 0x04, R1_NONE = 0xff };

/* 7.3.3 */
enum {
    TOKEN_START = 0xfe,
    TOKEN_START_MULTIPLE = 0xfc,
    TOKEN_STOP = 0xfd,
    RESPONSE_MASK = 0x1f,
    RESPONSE_ACCEPTED = 0x05,
    RESPONSE_CRC_ERROR = 0x0b,
};

#define HIGH_CAPACITY (UINT32_C(1) << 30) /* HCS in ACMD41, CCS in the OCR */
#define VOLTAGE_AND_PATTERN 0x1aau        /* CMD8: 2.7 to 3.6 V, and what is to come back */

const char jw_storage_driver[] = "sd-spi";

static bool is_block_addressed;
static bool is_write_protected;
static jw_storage_facts card;
static uint32_t first_block; /* of the stretch */

/* --- bytes -------------------------------------------------------------------------------- */

static uint8_t receive(void) {
    return board_spi_exchange(0xff);
}

/* The first byte that is not `waiting`, or `waiting` after the time limit. */
static uint8_t wait_while(uint8_t waiting, uint64_t limit_ns) {
    const uint64_t deadline_ns = jw_clock_ns() + limit_ns;
    uint8_t byte = receive();
    while (byte == waiting && jw_clock_ns() < deadline_ns) {
        byte = receive();
    }
    return byte;
}

/* A card that is programming holds its line low. */
static bool wait_until_ready(void) {
    const uint64_t deadline_ns = jw_clock_ns() + BUSY_NS;
    uint8_t byte = receive();
    while (byte != 0xff && jw_clock_ns() < deadline_ns) {
        byte = receive();
    }
    return byte == 0xff;
}

/* The card releases its line only on the clock after it was deselected. */
static void deselect(void) {
    board_spi_select(false);
    receive();
}

/* --- commands ----------------------------------------------------------------------------- */

/* R1, or R1_NONE without an answer. */
static uint8_t send(command number, uint32_t argument) {
    uint8_t frame[6] = {(uint8_t)(0x40 | number), (uint8_t)(argument >> 24),
                        (uint8_t)(argument >> 16), (uint8_t)(argument >> 8), (uint8_t)argument};
    frame[5] = (uint8_t)(jw_sd_crc7(frame, 5) << 1 | 1);
    for (size_t i = 0; i < sizeof frame; i++) {
        board_spi_exchange(frame[i]);
    }
    if (number == STOP_TRANSMISSION) {
        receive(); /* a byte of the data that it stops */
    }
    uint8_t answer = R1_NONE;
    for (int tries = ANSWER_TRIES; tries && answer & 0x80; tries--) {
        answer = receive();
    }
    return answer & 0x80 ? R1_NONE : answer;
}

static uint8_t select_and_send(command number, uint32_t argument) {
    deselect();
    board_spi_select(true);
    return wait_until_ready() ? send(number, argument) : R1_NONE;
}

static uint32_t receive_word(void) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        word = word << 8 | receive();
    }
    return word;
}

static uint8_t send_application(command number, uint32_t argument) {
    const uint8_t answer = select_and_send(APP_CMD, 0);
    return answer & ~R1_IDLE ? answer : select_and_send(number, argument);
}

static const char *refused(command number, uint8_t answer) {
    if (answer == R1_NONE) {
        return jw_sentence("the card does not answer CMD%u; is it still inserted?",
                           (uint32_t)number);
    }
    return jw_sentence("the card refuses CMD%u: R1 is 0x%x", (uint32_t)number, answer);
}

/* --- blocks ------------------------------------------------------------------------------- */

static const char *receive_data(uint8_t *memory, size_t bytes, const char *what, uint32_t number) {
    const uint8_t token = wait_while(0xff, READ_NS);
    if (token == 0xff) {
        return jw_sentence("the card did not send %s %u within %u ms", what, number,
                           (uint32_t)(READ_NS / MS));
    }
    if (token != TOKEN_START) {
        return jw_sentence("the card cannot read %s %u: data error token 0x%x", what, number,
                           token);
    }
    uint16_t crc = 0;
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = receive();
        crc = jw_sd_crc16(crc, memory[i]);
    }
    uint16_t sent = (uint16_t)(receive() << 8);
    sent |= receive();
    if (sent != crc) {
        return jw_sentence("%s %u arrived damaged: CRC 0x%x instead of 0x%x", what, number, sent,
                           crc);
    }
    return NULL;
}

static const char *send_data(uint8_t token, const uint8_t *memory, uint32_t block) {
    receive(); /* NWR, 7.5.4 */
    board_spi_exchange(token);
    uint16_t crc = 0;
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        crc = jw_sd_crc16(crc, memory[i]);
        board_spi_exchange(memory[i]);
    }
    board_spi_exchange((uint8_t)(crc >> 8));
    board_spi_exchange((uint8_t)crc);
    const uint8_t response = receive();
    if (response == 0xff) {
        return jw_sentence("the card does not answer while block %u is written; is it still"
                           " inserted?",
                           block);
    }
    if ((response & RESPONSE_MASK) != RESPONSE_ACCEPTED) {
        return jw_sentence("the card did not accept block %u: %s, data response 0x%x", block,
                           (response & RESPONSE_MASK) == RESPONSE_CRC_ERROR ? "CRC error"
                                                                            : "write error",
                           response & RESPONSE_MASK);
    }
    if (!wait_until_ready()) {
        return jw_sentence("the card is still busy with block %u after %u ms", block,
                           (uint32_t)(BUSY_NS / MS));
    }
    return NULL;
}

static uint32_t card_address(uint32_t block) {
    return is_block_addressed ? block : block * BLOCK_BYTES;
}

static const char *read_blocks(uint8_t *memory, uint32_t block, uint32_t count) {
    const command number = count > 1 ? READ_MULTIPLE_BLOCK : READ_SINGLE_BLOCK;
    const uint8_t answer = select_and_send(number, card_address(block));
    if (answer != R1_READY) {
        return refused(number, answer);
    }
    const char *error = NULL;
    for (uint32_t i = 0; i < count && !error; i++) {
        error = receive_data(memory + (size_t)i * BLOCK_BYTES, BLOCK_BYTES, "block", block + i);
    }
    if (number == READ_MULTIPLE_BLOCK) {
        const uint8_t stopped = send(STOP_TRANSMISSION, 0);
        if (!error && (stopped == R1_NONE || !wait_until_ready())) {
            return refused(STOP_TRANSMISSION, stopped);
        }
    }
    return error;
}

/* What went wrong in the card after it had accepted the data: 4.10.1 by 7.3.2.3. */
static const char *check_status(uint32_t block) {
    const uint8_t answer = select_and_send(SEND_STATUS, 0);
    const uint8_t status = receive();
    if (answer == R1_READY && !status) {
        return NULL;
    }
    if (answer == R1_NONE) {
        return refused(SEND_STATUS, answer);
    }
    return jw_sentence("the card failed to write from block %u on: %s, status 0x%x", block,
                       status & 0x20 ? "it is write-protected there" : "the block may be worn",
                       (uint32_t)answer << 8 | status);
}

static const char *write_blocks(const uint8_t *memory, uint32_t block, uint32_t count) {
    const command number = count > 1 ? WRITE_MULTIPLE_BLOCK : WRITE_BLOCK;
    const uint8_t token = count > 1 ? TOKEN_START_MULTIPLE : TOKEN_START;
    const uint8_t answer = select_and_send(number, card_address(block));
    if (answer != R1_READY) {
        return refused(number, answer);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *error = send_data(token, memory + (size_t)i * BLOCK_BYTES, block + i);
        if (error) {
            if (number == WRITE_MULTIPLE_BLOCK && wait_until_ready()) {
                send(STOP_TRANSMISSION, 0); /* 7.2.4: in place of the stop token */
            }
            return error;
        }
    }
    if (number == WRITE_MULTIPLE_BLOCK) {
        board_spi_exchange(TOKEN_STOP);
        receive();
        if (!wait_until_ready()) {
            return jw_sentence("the card is still busy behind block %u after %u ms",
                               block + count - 1, (uint32_t)(BUSY_NS / MS));
        }
    }
    return check_status(block);
}

static const char *transfer_read(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    const char *error = read_blocks(memory, first_block + (uint32_t)(offset / BLOCK_BYTES),
                                    (uint32_t)(bytes / BLOCK_BYTES));
    deselect();
    return error;
}

static const char *transfer_write(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    if (is_write_protected) {
        return "the card is write-protected";
    }
    const char *error = write_blocks(memory, first_block + (uint32_t)(offset / BLOCK_BYTES),
                                     (uint32_t)(bytes / BLOCK_BYTES));
    deselect();
    return error;
}

/* --- initialisation, 7.2.1 ---------------------------------------------------------------- */

static const char *go_idle(void) {
    const uint64_t deadline_ns = jw_clock_ns() + RESET_NS;
    uint8_t answer;
    do {
        deselect();
        board_spi_select(true);
        answer = send(GO_IDLE_STATE, 0);
    } while (answer != R1_IDLE && jw_clock_ns() < deadline_ns);
    if (answer == R1_IDLE) {
        return NULL;
    }
    return jw_sentence("no card answers on SPI (CMD0 gave 0x%x); is one inserted, and wired?",
                       answer);
}

/* Whether the card is of version 2.00 or later, which may be of high capacity. */
static const char *ask_version(bool *is_version_2) {
    const uint8_t answer = select_and_send(SEND_IF_COND, VOLTAGE_AND_PATTERN);
    *is_version_2 = !(answer & R1_ILLEGAL);
    if (answer == R1_NONE) {
        return refused(SEND_IF_COND, answer);
    }
    if (*is_version_2 && (receive_word() & 0xfff) != VOLTAGE_AND_PATTERN) {
        return "the card does not work at 2.7 to 3.6 V";
    }
    return NULL;
}

static const char *leave_idle(bool is_version_2) {
    const uint64_t deadline_ns = jw_clock_ns() + INITIALISATION_NS;
    uint8_t answer;
    do {
        answer = send_application(SD_SEND_OP_COND, is_version_2 ? HIGH_CAPACITY : 0);
    } while (answer == R1_IDLE && jw_clock_ns() < deadline_ns);
    if (answer == R1_IDLE) {
        return jw_sentence("the card is not ready %u ms after it was started",
                           (uint32_t)(INITIALISATION_NS / MS));
    }
    return answer == R1_READY ? NULL : refused(SD_SEND_OP_COND, answer);
}

static const char *choose_addressing(bool is_version_2) {
    is_block_addressed = false;
    if (is_version_2) {
        const uint8_t answer = select_and_send(READ_OCR, 0);
        if (answer & ~R1_IDLE) { /* QEMU says that it is still idle */
            return refused(READ_OCR, answer);
        }
        is_block_addressed = (receive_word() & HIGH_CAPACITY) != 0;
    }
    if (is_block_addressed) {
        return NULL;
    }
    const uint8_t answer = select_and_send(SET_BLOCKLEN, BLOCK_BYTES);
    return answer == R1_READY ? NULL : refused(SET_BLOCKLEN, answer);
}

static const char *read_register(command number, uint8_t bytes[JW_SD_REGISTER_BYTES]) {
    const uint8_t answer = select_and_send(number, 0);
    if (answer != R1_READY) {
        return refused(number, answer);
    }
    return receive_data(bytes, JW_SD_REGISTER_BYTES, "the answer to CMD", number);
}

static const char *initialise(jw_storage_facts *facts) {
    uint8_t bytes[JW_SD_REGISTER_BYTES];
    bool is_version_2;
    const char *error = go_idle();
    if (!error) {
        error = ask_version(&is_version_2);
    }
    if (!error) {
        const uint8_t answer = select_and_send(CRC_ON_OFF, 1);
        error = answer & ~R1_IDLE ? refused(CRC_ON_OFF, answer) : NULL;
    }
    if (!error) {
        error = leave_idle(is_version_2);
    }
    if (!error) {
        error = choose_addressing(is_version_2);
    }
    if (!error) {
        error = read_register(SEND_CSD, bytes);
    }
    if (error) {
        return error;
    }
    is_write_protected = jw_sd_is_write_protected(bytes);
    facts->capacity_bytes = jw_sd_capacity_bytes(bytes);
    if (!facts->capacity_bytes) {
        return "the card does not say its capacity in a way that cards on SPI do";
    }
    error = read_register(SEND_CID, bytes);
    jw_sd_identity(facts->card, bytes);
    return error;
}

const char *jw_storage_init(jw_storage_facts *facts) {
    card = (jw_storage_facts){.page_bytes = BLOCK_BYTES};
    board_spi_init();
    board_spi_fast(false);
    board_spi_select(false);
    jw_sleep_until(jw_clock_ns() + MS);
    for (int i = 0; i < 10; i++) {
        receive(); /* 74 clocks at least, 6.4.1.1 */
    }
    const char *error = initialise(&card);
    deselect();
    if (error) {
        card.capacity_bytes = 0;
        return error;
    }
    board_spi_fast(true);
    *facts = card;
    return NULL;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    const char *error = jw_stretch_open(medium, &card, offset, bytes);
    if (!error) {
        first_block = (uint32_t)(offset / BLOCK_BYTES);
        medium->transfer[JW_READ] = transfer_read;
        medium->transfer[JW_WRITE] = transfer_write;
    }
    return error;
}
