#include "stretch.h"

#include <string.h>

#include "registers.h"
#include "sentence.h"

const char *jw_stretch_open(jw_medium *medium, const jw_storage_facts *facts, uint64_t offset,
                            uint64_t bytes) {
    const uint32_t unit = facts->erase_block_bytes ? facts->erase_block_bytes : facts->page_bytes;
    if (!bytes || offset % unit || bytes % unit) {
        return jw_sentence("the offset and the size of scratch must be multiples of %u bytes",
                           unit);
    }
    if (offset > facts->capacity_bytes || bytes > facts->capacity_bytes - offset) {
        return jw_sentence("scratch reaches beyond the medium, which has %u KiB",
                           (uint32_t)(facts->capacity_bytes >> 10));
    }
    *medium = (jw_medium){.page_bytes = facts->page_bytes,
                          .erase_block_bytes = facts->erase_block_bytes,
                          .scratch_bytes = bytes,
                          .random = 1};
    return NULL;
}

void jw_flash_identity(jw_storage_facts *facts, const char *name, const uint32_t *unique,
                       size_t words) {
    char *at = stpcpy(facts->card, name);
    *at++ = '-';
    for (size_t digit = 0; digit < 8 * words; digit++) {
        *at++ = "0123456789abcdef"[unique[digit / 8] >> (28 - 4 * (digit % 8)) & 15];
    }
    *at = '\0';
}

const char *jw_stretch_spares_program(uint32_t address) {
    const uint32_t program_end = (uint32_t)(uintptr_t)jw_program_end;
    if (address >= program_end) {
        return NULL;
    }
    return jw_sentence("scratch at 0x%x would overwrite the program, which ends at 0x%x", address,
                       program_end);
}

const char *jw_flash_compare(uint32_t address, const void *memory, size_t bytes) {
    const unsigned char *flash = jw_mapped(address);
    const unsigned char *wanted = memory;
    for (size_t at = 0; at < bytes; at++) {
        const unsigned char held = flash[at]; /* read once: a worn cell may change its value */
        if (held != wanted[at]) {
            return jw_sentence("block at 0x%x fails to program: it holds 0x%x instead of 0x%x",
                               address + (uint32_t)at, held, wanted[at]);
        }
    }
    return NULL;
}

const char *jw_flash_compare_erased(uint32_t address, size_t bytes) {
    const uint32_t *flash = jw_mapped(address);
    for (size_t word = 0; word < bytes / sizeof *flash; word++) {
        if (flash[word] != UINT32_MAX) {
            return jw_sentence("block at 0x%x fails to erase: it holds 0x%x",
                               address + (uint32_t)(word * sizeof *flash), flash[word]);
        }
    }
    return NULL;
}
