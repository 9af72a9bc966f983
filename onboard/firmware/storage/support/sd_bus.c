#include "sd_bus.h"

#include "board.h"
#include "platform.h"
#include "sd_registers.h"
#include "sentence.h"

#define READ_NS (200 * JW_SD_MS) /* 4.6.2.1 requires at least 100 ms */

enum { ANSWER_TRIES = 9 /* NCR: 0 to 8 bytes, 7.5.4 */ };

/* 7.3.3.1 */
enum { RESPONSE_MASK = 0x1f, RESPONSE_ACCEPTED = 0x05, RESPONSE_CRC_ERROR = 0x0b };

/* --- bytes -------------------------------------------------------------------------------- */

uint8_t jw_sd_receive(void) {
    return board_spi_exchange(0xff);
}

/* Receive until a byte differs from `waiting`; returns it, or `waiting` after the time limit. */
static uint8_t wait_while(uint8_t waiting, uint64_t limit_ns) {
    const uint64_t deadline_ns = jw_clock_ns() + limit_ns;
    uint8_t byte = jw_sd_receive();
    while (byte == waiting && jw_clock_ns() < deadline_ns) {
        byte = jw_sd_receive();
    }
    return byte;
}

/* A card holds its line low while it programs. */
bool jw_sd_wait_until_ready(void) {
    const uint64_t deadline_ns = jw_clock_ns() + JW_SD_BUSY_NS;
    uint8_t byte = jw_sd_receive();
    while (byte != 0xff && jw_clock_ns() < deadline_ns) {
        byte = jw_sd_receive();
    }
    return byte == 0xff;
}

/* The card releases its line only with the clock after it is deselected. */
void jw_sd_deselect(void) {
    board_spi_select(false);
    jw_sd_receive();
}

/* --- commands ----------------------------------------------------------------------------- */

uint8_t jw_sd_send(jw_sd_command_number number, uint32_t argument) {
    uint8_t frame[6] = {(uint8_t)(0x40 | number), (uint8_t)(argument >> 24),
                        (uint8_t)(argument >> 16), (uint8_t)(argument >> 8), (uint8_t)argument};
    frame[5] = (uint8_t)(jw_sd_crc7(frame, 5) << 1 | 1);
    for (size_t i = 0; i < sizeof frame; i++) {
        board_spi_exchange(frame[i]);
    }
    if (number == JW_SD_STOP_TRANSMISSION) {
        jw_sd_receive(); /* a byte of the data that it stops */
    }
    uint8_t answer = JW_SD_R1_NONE;
    for (int tries = ANSWER_TRIES; tries && answer & 0x80; tries--) {
        answer = jw_sd_receive();
    }
    return answer & 0x80 ? JW_SD_R1_NONE : answer;
}

uint8_t jw_sd_command(jw_sd_command_number number, uint32_t argument) {
    jw_sd_deselect();
    board_spi_select(true);
    return jw_sd_wait_until_ready() ? jw_sd_send(number, argument) : JW_SD_R1_NONE;
}

uint32_t jw_sd_receive_word(void) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        word = word << 8 | jw_sd_receive();
    }
    return word;
}

uint8_t jw_sd_application_command(jw_sd_command_number number, uint32_t argument) {
    const uint8_t answer = jw_sd_command(JW_SD_APP_CMD, 0);
    return answer & ~JW_SD_R1_IDLE ? answer : jw_sd_command(number, argument);
}

const char *jw_sd_refused(jw_sd_command_number number, uint8_t answer) {
    if (answer == JW_SD_R1_NONE) {
        return jw_sentence("the card does not answer CMD%u; is it still inserted?",
                           (uint32_t)number);
    }
    return jw_sentence("the card refuses CMD%u: R1 is 0x%x", (uint32_t)number, answer);
}

/* --- blocks ------------------------------------------------------------------------------- */

const char *jw_sd_receive_data(uint8_t *memory, size_t bytes, const char *what, uint32_t number) {
    const uint8_t token = wait_while(0xff, READ_NS);
    if (token == 0xff) {
        return jw_sentence("the card did not send %s %u within %u ms", what, number,
                           (uint32_t)(READ_NS / JW_SD_MS));
    }
    if (token != JW_SD_TOKEN_START) {
        return jw_sentence("the card cannot read %s %u: data error token 0x%x", what, number,
                           token);
    }
    uint16_t crc = 0;
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = jw_sd_receive();
        crc = jw_sd_crc16(crc, memory[i]);
    }
    uint16_t sent = (uint16_t)(jw_sd_receive() << 8);
    sent |= jw_sd_receive();
    if (sent != crc) {
        return jw_sentence("%s %u arrived damaged: CRC 0x%x instead of 0x%x", what, number, sent,
                           crc);
    }
    return NULL;
}

const char *jw_sd_send_data(uint8_t token, const uint8_t *memory, uint32_t block) {
    jw_sd_receive(); /* NWR, 7.5.4 */
    board_spi_exchange(token);
    uint16_t crc = 0;
    for (size_t i = 0; i < JW_SD_BLOCK_BYTES; i++) {
        crc = jw_sd_crc16(crc, memory[i]);
        board_spi_exchange(memory[i]);
    }
    board_spi_exchange((uint8_t)(crc >> 8));
    board_spi_exchange((uint8_t)crc);
    const uint8_t response = jw_sd_receive();
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
    if (!jw_sd_wait_until_ready()) {
        return jw_sentence("the card is still busy with block %u after %u ms", block,
                           (uint32_t)(JW_SD_BUSY_NS / JW_SD_MS));
    }
    return NULL;
}
