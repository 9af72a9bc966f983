/* Measures transfers to and from a medium, each with the checksum that replays make of its bytes. */
#ifndef JW_TRANSFER_H
#define JW_TRANSFER_H

#include "core.h"
#include "medium.h"

/* Method named "read", "write", "erase" or "write-buffered"; JW_METHOD_COUNT for other names. */
jw_method jw_method_named(const char *name);

/* Measure transfers of `bytes` at changing offsets, at least one, until min_ns have passed or
 * `most` are done; then wait for tail_ns while the medium settles. `memory` has `bytes` bytes.
 * Flash is erased before the window: ceil(most * bytes / erase_block_bytes) blocks, with `most`
 * limited to what fits into the scratch. Before the window the wait is the same. *tail_end_ns is the
 * end of the wait after it. Returns NULL, or why it failed. */
const char *jw_medium_measure(jw_medium *medium, jw_method method, void *memory, size_t bytes,
                              uint64_t most, uint64_t min_ns, uint64_t tail_ns, jw_window *window,
                              uint64_t *tail_end_ns);

#endif
