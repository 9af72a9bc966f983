/* Transfers between RAM and a scratch file on the board's storage. */
#ifndef JW_LINUX_STORAGE_H
#define JW_LINUX_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core.h"

typedef enum {
    JW_READ_DIRECT,    /* O_DIRECT */
    JW_WRITE_DIRECT,   /* O_DIRECT and O_DSYNC */
    JW_WRITE_BUFFERED, /* through the page cache, each followed by fdatasync */
} jw_method;

typedef struct jw_scratch jw_scratch;

/* Makes a file of `bytes` in `directory`, full of random data, that has no name any more when this
 * returns: it vanishes with the process, whatever happens to it. Exits with JW_EXIT_STORAGE. */
jw_scratch *jw_scratch_open(const char *directory, size_t bytes);

/* False where the file system refuses O_DIRECT (tmpfs): transfers then go through the page cache,
 * which is emptied of them before they are read. */
bool jw_scratch_is_direct(const jw_scratch *scratch);

size_t jw_scratch_bytes(const jw_scratch *scratch);

/* Transfers of `bytes` at changing places of the file until min_ns have passed or `most` are done,
 * at least one; then waits for tail_ns, for the medium to settle. */
jw_window jw_scratch_measure(jw_scratch *scratch, jw_method method, size_t bytes, uint64_t most,
                             uint64_t min_ns, uint64_t tail_ns, uint64_t *tail_end_ns);

void jw_scratch_close(jw_scratch *scratch);

#endif
