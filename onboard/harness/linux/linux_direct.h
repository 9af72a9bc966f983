/* Transfers between a file and memory at any address: those of replays, and those that are profiled,
 * which are therefore made alike. */
#ifndef JW_LINUX_DIRECT_H
#define JW_LINUX_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a buffer that most tensors pass through, since O_DIRECT refuses their addresses. */
#define JW_BOUNCE_BYTES ((size_t)256 << 10)

typedef struct {
    int buffered;
    int direct;        /* for reads, and for writes in parts, synced after the last */
    int direct_synced; /* for writes in one part */
    bool is_direct;    /* false: the file system refuses O_DIRECT */
    size_t page_bytes;
    size_t alignment; /* of memory for direct transfers */
    unsigned char *bounce;
    char sentence[160];
} jw_direct_file;

/* Open an open file once more for transfers of whole pages; JW_BOUNCE_BYTES is a multiple of
 * `page_bytes`. False with errno set on failure. */
bool jw_direct_open(jw_direct_file *file, int buffered, size_t page_bytes);

/* Read into memory, or write and sync. Offsets are multiples of page_bytes; a last page is read and
 * written as a whole, and filled up with zeros. Each returns NULL, or why it failed. */
const char *jw_direct_read(jw_direct_file *file, uint64_t offset, void *memory, size_t bytes);
const char *jw_direct_write(jw_direct_file *file, uint64_t offset, const void *memory,
                            size_t bytes);

#endif
