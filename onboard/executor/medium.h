/* Storage: a range of a medium that may be overwritten. */
#ifndef JW_MEDIUM_H
#define JW_MEDIUM_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    JW_READ,
    JW_WRITE, /* synchronous; flash must have been erased */
    JW_ERASE,
    JW_WRITE_BUFFERED, /* through the page cache, then synced */
    JW_METHOD_COUNT
} jw_method;

/* Offsets count from the start of the range. Offsets and sizes are multiples of page_bytes; those
 * of erase are multiples of erase_block_bytes. */
typedef struct jw_medium jw_medium;
struct jw_medium {
    /* Each returns NULL, or a sentence that says why it failed. The pointer itself is NULL if the
     * medium does not have the method. */
    const char *(*transfer[JW_METHOD_COUNT])(jw_medium *medium, uint64_t offset, void *memory,
                                             size_t bytes);
    uint32_t page_bytes;
    uint32_t erase_block_bytes; /* 0: needs no erasing */
    uint64_t scratch_bytes;     /* size of the range */
    uint64_t next;              /* offset at which flash is written next, so that wear is even */
    uint32_t random;            /* state of the random offsets to read from */
};

#endif
