/* The file that replays page to. It has a name, so that a later run can recover the last complete
 * step of an earlier one. */
#ifndef JW_LINUX_REPLAY_STORE_H
#define JW_LINUX_REPLAY_STORE_H

#include <stdbool.h>

#include "medium.h"
#include "text.h"

/* Open the file that the rest of a `store` line describes:
 *
 *   bytes=8388608 anew=1 frozen=0 directory=/var/tmp
 *
 * With anew=1, the file .joulewright-store in the directory is created or overwritten, and filled,
 * so that a full disk is noticed now; but its first `frozen` bytes stay, which hold what no step
 * changes. With anew=0, it must exist and have this size. The file is
 * locked: only one replay can use it. *is_direct as in linux_storage.h.
 *
 * Sizes and addresses of transfers are multiples of four bytes. Writes are padded with zeros to
 * whole pages, see jw_store_file_pages.
 *
 * Returns NULL with text->error set if the line is wrong. Exits with JW_EXIT_STORAGE if the file
 * cannot be opened; later errors are returned by the transfers. */
jw_medium *jw_store_file_open(jw_text *text, bool *is_direct);

/* Set the page size. False if it does not divide the size of the buffers. */
bool jw_store_file_pages(jw_medium *medium, uint32_t page_bytes);

/* Remove the file. Returns NULL, or why it failed. */
const char *jw_store_file_forget(jw_medium *medium);

#endif
