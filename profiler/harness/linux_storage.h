/* Transfers between RAM and a scratch file on the board's storage. */
#ifndef JW_LINUX_STORAGE_H
#define JW_LINUX_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "medium.h"

typedef struct jw_scratch jw_scratch;

/* Makes a file of `bytes` in `directory`, full of random data, that has no name any more when this
 * returns: it vanishes with the process, whatever happens to it. Exits with JW_EXIT_STORAGE. */
jw_scratch *jw_scratch_open(const char *directory, size_t bytes);

/* False where the file system refuses O_DIRECT (tmpfs): transfers then go through the page cache,
 * which is emptied of them before they are read. */
bool jw_scratch_is_direct(const jw_scratch *scratch);

/* JW_READ: O_DIRECT; JW_WRITE: O_DIRECT and O_DSYNC; JW_WRITE_BUFFERED: through the page cache, each
 * followed by fdatasync. */
jw_medium *jw_scratch_medium(jw_scratch *scratch);

void jw_scratch_close(jw_scratch *scratch);

#endif
