/* What every driver asks of the stretch that it may overwrite. */
#ifndef JW_STRETCH_H
#define JW_STRETCH_H

#include "medium.h"
#include "storage.h"

/* Fills in all of `medium` but its methods. NULL, or the sentence that says what is wrong with the
 * stretch. */
const char *jw_stretch_open(jw_medium *medium, const jw_storage_facts *facts, uint64_t offset,
                            uint64_t bytes);

/* `name` and the chip's unique number in hexadecimal, for flash that has no identity of its own. */
void jw_flash_identity(jw_storage_facts *facts, const char *name, const uint32_t *unique,
                       size_t words);

/* NULL for a stretch of the chip's own flash that lies behind the program, or the sentence that
 * says where it does not. `address` is where the stretch begins. */
const char *jw_stretch_spares_program(uint32_t address);

/* NULL if the memory-mapped flash from `address` on holds the same bytes; or the sentence that
 * names the first block that does not. */
const char *jw_flash_compare(uint32_t address, const void *memory, size_t bytes);

/* As above: all bits are set. */
const char *jw_flash_compare_erased(uint32_t address, size_t bytes);

#endif
