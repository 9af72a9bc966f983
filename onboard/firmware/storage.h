/* Interface of a storage driver: one file of storage/, compiled in if the description's
 * `storage.driver` names it (sd-spi is storage/sd_spi.c). */
#ifndef JW_STORAGE_H
#define JW_STORAGE_H

#include <stdint.h>

#include "medium.h"

/* Facts that the medium reports. */
typedef struct {
    char card[48];           /* identity of the medium, without spaces; "" if it has none */
    uint64_t capacity_bytes; /* of the whole medium */
    uint32_t page_bytes;
    uint32_t erase_block_bytes; /* 0: needs no erasing */
} jw_storage_facts;

/* Name of the driver in descriptions, or "none". */
extern const char jw_storage_driver[];

/* Initialise the medium, at every call. Returns NULL, or a sentence that says why it failed. */
const char *jw_storage_init(jw_storage_facts *facts);

/* Open the range of `bytes` bytes at `offset` of the medium, which may be overwritten;
 * jw_storage_init must have succeeded before. Fails if the range does not fit, is not of whole
 * pages and erase blocks, or holds the program. Returns NULL, or a sentence that says why it
 * failed. */
const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes);

/* Start and end of the program in flash, from the linker script. */
extern const unsigned char jw_flash_begin[];
extern const unsigned char jw_program_end[];

#endif
