/* A stretch of a raw flash partition, /dev/mtdN, that may be overwritten.
 *
 * Blocks that are bad are left out. The first half of the others holds data to be read, and is
 * erased and programmed only where it does not: of an erased page, error correction takes another
 * time. The second half is what is erased and programmed, from one end to the other:
 *
 *   offset │ data │ data │ bad │ data │ written │ bad │ written │ written │ offset + bytes
 */
#ifndef JW_LINUX_MTD_H
#define JW_LINUX_MTD_H

#include <stdint.h>

#include "medium.h"

typedef struct {
    const char *device; /* "/dev/mtd0" */
    const char *name;   /* of the partition; another one is refused */
    uint64_t offset;
    uint64_t bytes;
    uint32_t page_bytes; /* whole pages of the flash */
    uint32_t erase_block_bytes;
} jw_mtd_stretch;

/* Exits with JW_EXIT_STORAGE if the partition is not as the stretch says, if more than an eighth of
 * its blocks are bad, and in any transfer in which a block fails. */
jw_medium *jw_mtd_open(const jw_mtd_stretch *stretch);

#endif
