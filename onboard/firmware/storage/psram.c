/* RAM on the board's external bus, such as PSRAM, as storage: slower or further away than the RAM
 * of the arena, and lost without power. What a step has written is intact after a reset.
 *
 * Ran on the memory of QEMU's mps2-an386.
 */
#include <string.h>

#include "board.h"
#include "storage.h"
#include "support/sentence.h"
#include "support/stretch.h"

#define PATTERN 0x5aa55aa5u

const char jw_storage_driver[] = "psram";

static jw_storage_facts psram;
static unsigned char *begin;
static unsigned char *stretch; /* start of the range */

static const char *read_psram(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    memcpy(memory, stretch + offset, bytes);
    return NULL;
}

static const char *write_psram(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    memcpy(stretch + offset, memory, bytes);
    return NULL;
}

/* Check that memory answers at an address; what it holds is restored. */
static bool holds(uint32_t at) {
    volatile uint32_t *word = (volatile uint32_t *)(void *)(begin + at);
    const uint32_t before = *word;
    *word = PATTERN;
    const bool is_first = *word == PATTERN;
    *word = ~PATTERN;
    const bool is_second = *word == ~PATTERN;
    *word = before;
    return is_first && is_second;
}

const char *jw_storage_init(jw_storage_facts *facts) {
    uint32_t bytes;
    begin = board_psram(&bytes);
    if (!holds(0) || !holds(bytes - 4)) {
        return jw_sentence("the external memory of %u KiB at 0x%x does not answer", bytes >> 10,
                           (uint32_t)(uintptr_t)begin);
    }
    psram = (jw_storage_facts){.card = "psram", .page_bytes = 4, .capacity_bytes = bytes};
    *facts = psram;
    return NULL;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    const char *error = jw_stretch_open(medium, &psram, offset, bytes);
    if (!error) {
        stretch = begin + offset;
        medium->transfer[JW_READ] = read_psram;
        medium->transfer[JW_WRITE] = write_psram;
    }
    return error;
}
