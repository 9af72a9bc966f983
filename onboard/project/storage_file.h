/* Storage for the pages of a plan, here a file. It is the piece to be replaced by a driver of your
 * own: fill in a jw_medium (executor/medium.h) that keeps to the following.
 *
 * - A transfer's offset counts from the begin of the stretch that you give away; offset and bytes
 *   are multiples of page_bytes. Memory is aligned to four bytes.
 * - JW_READ brings what was last written there, all of it.
 * - JW_WRITE has reached the medium when it returns, or at least cannot be overtaken by a later
 *   one: a step becomes valid by its record, which is written last.
 * - JW_ERASE is NULL, and erase_block_bytes 0, where anything can be written over. Otherwise it
 *   erases whole blocks; a page is then written only once between two erasures.
 * - scratch_bytes is the stretch's size: twice jw_plan.step_bytes at least. Parts of that size are
 *   written in turn, so that a larger stretch wears more slowly.
 * - page_bytes divides that of the plan, erase_block_bytes the plan's too.
 * - All return NULL, or a sentence that says what went wrong. The step then ends; the last complete
 *   one can be recovered.
 * - Calls come from whoever runs the step, one after the other. JW_WRITE_BUFFERED, `next` and
 *   `random` are not used.
 */
#ifndef STORAGE_FILE_H
#define STORAGE_FILE_H

#include "medium.h"

typedef struct {
    jw_medium medium; /* first: transfers are given a pointer to it */
    int descriptor;
} storage_file;

/* Made if it is not there. NULL, or why it cannot be used. */
const char *storage_file_open(storage_file *file, const char *path, uint32_t page_bytes,
                              uint64_t bytes);

void storage_file_close(storage_file *file);

#endif
