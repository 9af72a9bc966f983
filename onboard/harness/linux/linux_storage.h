/* Storage on Linux: a scratch file, or a range of raw flash. */
#ifndef JW_LINUX_STORAGE_H
#define JW_LINUX_STORAGE_H

#include <stdbool.h>

#include "medium.h"
#include "text.h"

/* Open the storage that the rest of a `scratch` line describes:
 *
 *   bytes=8388608 directory=/var/tmp
 *   bytes=8388608 offset=0 page_bytes=2048 erase_block_bytes=131072 mtd=/dev/mtd0 name=scratch
 *
 * In the directory, a file with random data is created and unlinked, so that it disappears when the
 * process ends for any reason. For raw flash see linux_mtd.h.
 *
 * *is_direct is false if the file system refuses O_DIRECT (tmpfs): transfers then use the page
 * cache, from which pages are dropped before they are read.
 *
 * Returns NULL with text->error set if the line is wrong. Exits with JW_EXIT_STORAGE if the storage
 * fails, now or in a transfer. The medium is never freed. */
jw_medium *jw_scratch_open(jw_text *text, bool *is_direct);

#endif
