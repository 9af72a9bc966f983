/* Storage: a stretch of a medium that may be overwritten. */
#ifndef JW_MEDIUM_H
#define JW_MEDIUM_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    JW_READ,
    JW_WRITE, /* to where it is on the medium; over erased flash where it must be erased */
    JW_ERASE,
    JW_WRITE_BUFFERED, /* through a page cache, then synced */
    JW_METHOD_COUNT
} jw_method;

/* Offsets count from the stretch's begin; they and sizes are multiples of page_bytes, for erase of
 * erase_block_bytes. */
typedef struct jw_medium jw_medium;
struct jw_medium {
    /* NULL if it went well, or the sentence that says why not. A method that the medium does not
     * have is NULL. */
    const char *(*transfer[JW_METHOD_COUNT])(jw_medium *medium, uint64_t offset, void *memory,
                                             size_t bytes);
    uint32_t page_bytes;
    uint32_t erase_block_bytes; /* 0: nothing is erased */
    uint64_t scratch_bytes;
    uint64_t next;   /* where flash was last written, so that wear is even */
    uint32_t random; /* state for places to read from */
};

#endif
