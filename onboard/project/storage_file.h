/* Storage for the pages of a plan, here a file. Replace it by your own driver: fill in a jw_medium
 * (executor/medium.h) that follows these rules.
 *
 * - The offset of a transfer counts from the start of the range that you provide; offset and bytes
 *   are multiples of page_bytes. Memory is aligned to four bytes.
 * - JW_READ returns the bytes that were last written there.
 * - JW_WRITE has reached the medium when it returns; at least, a later write must not overtake it,
 *   since a step becomes valid by its record, which is written last.
 * - JW_ERASE is NULL, and erase_block_bytes 0, if the medium can be overwritten. Otherwise JW_ERASE
 *   erases whole blocks; a page is then written only once between two erasures, the pages of a block
 *   in any order.
 * - scratch_bytes is the size of the range, at least jw_plan.frozen_bytes, jw_plan.table_bytes and
 *   twice jw_plan.step_bytes. Parts of jw_plan.step_bytes are written in turn, so that a larger range
 *   wears more slowly. With tables that steps change, the medium must be one that can be overwritten.
 * - page_bytes divides the plan's page_bytes, and erase_block_bytes the plan's erase_block_bytes.
 * - All methods return NULL, or a sentence that says what failed. The step then ends; the last
 *   complete step can be recovered.
 * - The caller of the executor makes all calls, one after the other. JW_WRITE_BUFFERED, `next` and
 *   `random` are not used.
 */
#ifndef STORAGE_FILE_H
#define STORAGE_FILE_H

#include "medium.h"

/* A medium in a file. */
typedef struct {
    jw_medium medium; /* first, since transfers get a pointer to it */
    int descriptor;
} storage_file;

/* Open a file of `bytes` bytes, and create it if it does not exist. Returns NULL, or why it
 * failed. */
const char *storage_file_open(storage_file *file, const char *path, uint32_t page_bytes,
                              uint64_t bytes);

/* Close the file. */
void storage_file_close(storage_file *file);

#endif
