/* What a storage driver brings: one file of storage/, compiled in when the description's
 * `storage.driver` names it (sd-spi is storage/sd_spi.c). */
#ifndef JW_STORAGE_H
#define JW_STORAGE_H

#include <stdint.h>

#include "medium.h"

typedef struct {
    char card[48];           /* what the medium says that it is, without spaces; "" if nothing */
    uint64_t capacity_bytes; /* of the whole medium */
    uint32_t page_bytes;
    uint32_t erase_block_bytes; /* 0: nothing is erased */
} jw_storage_facts;

/* As descriptions name it, or "none". */
extern const char jw_storage_driver[];

/* Initialises the medium, again each time it is called. NULL, or the sentence that says why not. */
const char *jw_storage_init(jw_storage_facts *facts);

/* Makes `medium` the stretch of `bytes` from `offset` on (counted from the medium's begin) that may
 * be overwritten; jw_storage_init has succeeded before. Refuses what does not fit, is not made of
 * whole pages and erase blocks, or holds the program. NULL, or the sentence that says why not. */
const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes);

/* For media that share the flash with the program: where that begins and ends (linker script). */
extern const unsigned char jw_flash_begin[];
extern const unsigned char jw_program_end[];

#endif
