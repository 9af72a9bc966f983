/* SD cards in SPI mode: SD Specifications, Part 1, Physical Layer Simplified Specification, chapter
 * 7 (section numbers are those of version 9). SDSC, SDHC and SDXC; no MultiMediaCards.
 *
 * Ran against QEMU's card (ssi-sd) and against a stand-in that follows the specification more
 * closely than QEMU does, but never against a real card.
 */
#include "board.h"
#include "platform.h"
#include "storage.h"
#include "support/sd_bus.h"
#include "support/sd_registers.h"
#include "support/sentence.h"
#include "support/stretch.h"

/* Longest waits, 4.2.3. */
#define RESET_NS (1000 * JW_SD_MS)
#define INITIALISATION_NS (1000 * JW_SD_MS)

#define HIGH_CAPACITY (UINT32_C(1) << 30) /* HCS in ACMD41, CCS in the OCR */
#define VOLTAGE_AND_PATTERN 0x1aau        /* CMD8: 2.7 to 3.6 V, and a pattern to be echoed */

const char jw_storage_driver[] = "sd-spi";

static bool is_block_addressed;
static bool is_write_protected;
static jw_storage_facts card;
static uint32_t first_block; /* of the range */

/* --- blocks ------------------------------------------------------------------------------- */

static uint32_t card_address(uint32_t block) {
    return is_block_addressed ? block : block * JW_SD_BLOCK_BYTES;
}

static const char *wait_after(uint32_t block) {
    if (jw_sd_wait_until_ready()) {
        return NULL;
    }
    return jw_sentence("after block %u, the card is busy for more than %u ms", block,
                       (uint32_t)(JW_SD_BUSY_NS / JW_SD_MS));
}

static const char *read_blocks(uint8_t *memory, uint32_t block, uint32_t count) {
    const jw_sd_command_number number =
        count > 1 ? JW_SD_READ_MULTIPLE_BLOCK : JW_SD_READ_SINGLE_BLOCK;
    const uint8_t answer = jw_sd_command(number, card_address(block));
    if (answer != JW_SD_R1_READY) {
        return jw_sd_refused(number, answer);
    }
    const char *error = NULL;
    for (uint32_t i = 0; i < count && !error; i++) {
        error = jw_sd_receive_data(memory + (size_t)i * JW_SD_BLOCK_BYTES, JW_SD_BLOCK_BYTES,
                                   "block", block + i);
    }
    if (number == JW_SD_READ_MULTIPLE_BLOCK) {
        const uint8_t stopped = jw_sd_send(JW_SD_STOP_TRANSMISSION, 0);
        if (!error && stopped == JW_SD_R1_NONE) {
            return jw_sd_refused(JW_SD_STOP_TRANSMISSION, stopped);
        }
        error = error ? error : wait_after(block + count - 1);
    }
    return error;
}

/* Check whether writing failed in the card after it had accepted the data: 4.10.1 by 7.3.2.3. */
static const char *check_status(uint32_t block) {
    const uint8_t answer = jw_sd_command(JW_SD_SEND_STATUS, 0);
    const uint8_t status = jw_sd_receive();
    if (answer == JW_SD_R1_READY && !status) {
        return NULL;
    }
    if (answer == JW_SD_R1_NONE) {
        return jw_sd_refused(JW_SD_SEND_STATUS, answer);
    }
    return jw_sentence("the card failed to write from block %u on: %s, status 0x%x", block,
                       status & 0x20 ? "it is write-protected there" : "the block may be worn",
                       (uint32_t)answer << 8 | status);
}

static const char *write_blocks(const uint8_t *memory, uint32_t block, uint32_t count) {
    const jw_sd_command_number number = count > 1 ? JW_SD_WRITE_MULTIPLE_BLOCK : JW_SD_WRITE_BLOCK;
    const uint8_t token = count > 1 ? JW_SD_TOKEN_START_MULTIPLE : JW_SD_TOKEN_START;
    const uint8_t answer = jw_sd_command(number, card_address(block));
    if (answer != JW_SD_R1_READY) {
        return jw_sd_refused(number, answer);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *error =
            jw_sd_send_data(token, memory + (size_t)i * JW_SD_BLOCK_BYTES, block + i);
        if (error) {
            if (number == JW_SD_WRITE_MULTIPLE_BLOCK && jw_sd_wait_until_ready()) {
                jw_sd_send(JW_SD_STOP_TRANSMISSION, 0); /* 7.2.4: in place of the stop token */
            }
            return error;
        }
    }
    if (number == JW_SD_WRITE_MULTIPLE_BLOCK) {
        board_spi_exchange(JW_SD_TOKEN_STOP);
        jw_sd_receive();
        const char *error = wait_after(block + count - 1);
        if (error) {
            return error;
        }
    }
    return check_status(block);
}

static const char *transfer_read(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    const char *error = read_blocks(memory, first_block + (uint32_t)(offset / JW_SD_BLOCK_BYTES),
                                    (uint32_t)(bytes / JW_SD_BLOCK_BYTES));
    jw_sd_deselect();
    return error;
}

static const char *transfer_write(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    if (is_write_protected) {
        return "the card is write-protected";
    }
    const char *error = write_blocks(memory, first_block + (uint32_t)(offset / JW_SD_BLOCK_BYTES),
                                     (uint32_t)(bytes / JW_SD_BLOCK_BYTES));
    jw_sd_deselect();
    return error;
}

/* --- initialisation, 7.2.1 ---------------------------------------------------------------- */

static const char *go_idle(void) {
    const uint64_t deadline_ns = jw_clock_ns() + RESET_NS;
    uint8_t answer;
    do {
        jw_sd_deselect();
        board_spi_select(true);
        answer = jw_sd_send(JW_SD_GO_IDLE_STATE, 0);
    } while (answer != JW_SD_R1_IDLE && jw_clock_ns() < deadline_ns);
    if (answer == JW_SD_R1_IDLE) {
        return NULL;
    }
    return jw_sentence("no card answers on SPI (CMD0 gave 0x%x); is one inserted, and wired?",
                       answer);
}

/* Ask whether the card has version 2.00 or later, and may have a high capacity. */
static const char *ask_version(bool *is_version_2) {
    const uint8_t answer = jw_sd_command(JW_SD_SEND_IF_COND, VOLTAGE_AND_PATTERN);
    *is_version_2 = !(answer & JW_SD_R1_ILLEGAL);
    if (answer == JW_SD_R1_NONE) {
        return jw_sd_refused(JW_SD_SEND_IF_COND, answer);
    }
    if (*is_version_2 && (jw_sd_receive_word() & 0xfff) != VOLTAGE_AND_PATTERN) {
        return "the card does not work at 2.7 to 3.6 V";
    }
    return NULL;
}

static const char *leave_idle(bool is_version_2) {
    const uint64_t deadline_ns = jw_clock_ns() + INITIALISATION_NS;
    uint8_t answer;
    do {
        answer = jw_sd_application_command(JW_SD_SEND_OP_COND, is_version_2 ? HIGH_CAPACITY : 0);
    } while (answer == JW_SD_R1_IDLE && jw_clock_ns() < deadline_ns);
    if (answer == JW_SD_R1_IDLE) {
        return jw_sentence("the card is not ready %u ms after it was started",
                           (uint32_t)(INITIALISATION_NS / JW_SD_MS));
    }
    return answer == JW_SD_R1_READY ? NULL : jw_sd_refused(JW_SD_SEND_OP_COND, answer);
}

static const char *choose_addressing(bool is_version_2) {
    is_block_addressed = false;
    if (is_version_2) {
        const uint8_t answer = jw_sd_command(JW_SD_READ_OCR, 0);
        if (answer & ~JW_SD_R1_IDLE) { /* QEMU still sets the idle bit */
            return jw_sd_refused(JW_SD_READ_OCR, answer);
        }
        is_block_addressed = (jw_sd_receive_word() & HIGH_CAPACITY) != 0;
    }
    if (is_block_addressed) {
        return NULL;
    }
    const uint8_t answer = jw_sd_command(JW_SD_SET_BLOCKLEN, JW_SD_BLOCK_BYTES);
    return answer == JW_SD_R1_READY ? NULL : jw_sd_refused(JW_SD_SET_BLOCKLEN, answer);
}

static const char *read_register(jw_sd_command_number number, uint8_t bytes[JW_SD_REGISTER_BYTES]) {
    const uint8_t answer = jw_sd_command(number, 0);
    if (answer != JW_SD_R1_READY) {
        return jw_sd_refused(number, answer);
    }
    return jw_sd_receive_data(bytes, JW_SD_REGISTER_BYTES, "the answer to CMD", number);
}

static const char *initialise(jw_storage_facts *facts) {
    uint8_t bytes[JW_SD_REGISTER_BYTES];
    bool is_version_2;
    const char *error = go_idle();
    if (!error) {
        error = ask_version(&is_version_2);
    }
    if (!error) {
        const uint8_t answer = jw_sd_command(JW_SD_CRC_ON_OFF, 1);
        error = answer & ~JW_SD_R1_IDLE ? jw_sd_refused(JW_SD_CRC_ON_OFF, answer) : NULL;
    }
    if (!error) {
        error = leave_idle(is_version_2);
    }
    if (!error) {
        error = choose_addressing(is_version_2);
    }
    if (!error) {
        error = read_register(JW_SD_SEND_CSD, bytes);
    }
    if (error) {
        return error;
    }
    is_write_protected = jw_sd_is_write_protected(bytes);
    facts->capacity_bytes = jw_sd_capacity_bytes(bytes);
    if (!facts->capacity_bytes) {
        return "the card reports its capacity in a form that cards on SPI do not have";
    }
    error = read_register(JW_SD_SEND_CID, bytes);
    jw_sd_identity(facts->card, bytes);
    return error;
}

const char *jw_storage_init(jw_storage_facts *facts) {
    card = (jw_storage_facts){.page_bytes = JW_SD_BLOCK_BYTES};
    board_spi_init();
    board_spi_fast(false);
    board_spi_select(false);
    jw_sleep_until(jw_clock_ns() + JW_SD_MS);
    for (int i = 0; i < 10; i++) {
        jw_sd_receive(); /* at least 74 clocks, 6.4.1.1 */
    }
    const char *error = initialise(&card);
    jw_sd_deselect();
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
        first_block = (uint32_t)(offset / JW_SD_BLOCK_BYTES);
        medium->transfer[JW_READ] = transfer_read;
        medium->transfer[JW_WRITE] = transfer_write;
    }
    return error;
}
