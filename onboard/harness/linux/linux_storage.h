/* Storage on Linux: a scratch file, or a stretch of raw flash. */
#ifndef JW_LINUX_STORAGE_H
#define JW_LINUX_STORAGE_H

#include <stdbool.h>

#include "medium.h"
#include "text.h"

/* What follows the word `scratch`:
 *
 *   bytes=8388608 directory=/var/tmp
 *   bytes=8388608 offset=0 page_bytes=2048 erase_block_bytes=131072 mtd=/dev/mtd0 name=scratch
 *
 * In the directory a file is made, full of random data, that has no name any more when this
 * returns: it vanishes with the process, whatever happens to it. Of raw flash see linux_mtd.h.
 *
 * *is_direct is false where the file system refuses O_DIRECT (tmpfs): transfers then go through the
 * page cache, which is emptied of them before they are read.
 *
 * NULL leaves text->error. Exits with JW_EXIT_STORAGE where the storage fails, here and in every
 * transfer. The medium lives as long as the process. */
jw_medium *jw_scratch_open(jw_text *text, bool *is_direct);

#endif
