/* Shared by drivers: checks of the range that may be overwritten, and comparisons of flash. */
#ifndef JW_STRETCH_H
#define JW_STRETCH_H

#include "medium.h"
#include "storage.h"

/* Fill in `medium` except for its methods. Returns NULL, or a sentence that says what is wrong with
 * the range. */
const char *jw_stretch_open(jw_medium *medium, const jw_storage_facts *facts, uint64_t offset,
                            uint64_t bytes);

/* Set the identity of flash that has none: `name` and the chip's unique number in hexadecimal. */
void jw_flash_identity(jw_storage_facts *facts, const char *name, const uint32_t *unique,
                       size_t words);

/* Check that a range of the chip's flash, which begins at `address`, is after the program. Returns
 * NULL, or a sentence that says where the program ends. */
const char *jw_stretch_spares_program(uint32_t address);

/* Compare memory-mapped flash from `address` on with memory. Returns NULL if they are equal, or a
 * sentence that names the first block that differs. */
const char *jw_flash_compare(uint32_t address, const void *memory, size_t bytes);

/* Check that flash is erased, with all bits set; returns as above. */
const char *jw_flash_compare_erased(uint32_t address, size_t bytes);

#endif
