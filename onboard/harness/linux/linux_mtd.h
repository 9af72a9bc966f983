/* A range of a raw flash partition, /dev/mtdN, that may be overwritten.
 *
 * Bad blocks are left out. The first half of the others holds data to be read; its blocks are
 * programmed if they contain an erased page, since error correction of erased pages takes another
 * time. The second half is erased and programmed, from one end to the other:
 *
 *   offset │ data │ data │ bad │ data │ written │ bad │ written │ written │ offset + bytes
 */
#ifndef JW_LINUX_MTD_H
#define JW_LINUX_MTD_H

#include <stdint.h>

#include "medium.h"

/* A range of a partition, and the geometry that the description states. */
typedef struct {
    const char *device; /* "/dev/mtd0" */
    const char *name;   /* of the partition; it is checked */
    uint64_t offset;
    uint64_t bytes;
    uint32_t page_bytes; /* a multiple of the flash's page size */
    uint32_t erase_block_bytes;
} jw_mtd_stretch;

/* Open a range. Exits with JW_EXIT_STORAGE if the partition differs from its description, if more
 * than an eighth of the blocks are bad, and if a block fails in a transfer. */
jw_medium *jw_mtd_open(const jw_mtd_stretch *stretch);

#endif
