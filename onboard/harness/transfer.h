/* Transfers to and from a medium, as they are measured. */
#ifndef JW_TRANSFER_H
#define JW_TRANSFER_H

#include "core.h"
#include "medium.h"

/* "read", "write", "erase", "write-buffered". JW_METHOD_COUNT for any other name. */
jw_method jw_method_named(const char *name);

/* Transfers of `bytes` at changing places until min_ns have passed or `most` are done, at least
 * one; then waits for tail_ns, for the medium to settle. `memory` holds `bytes`. Flash is erased
 * before it is written, outside the window: ceil(most * bytes / erase_block_bytes) blocks, `most`
 * being no more than fit into the scratch. NULL, or why not. */
const char *jw_medium_measure(jw_medium *medium, jw_method method, void *memory, size_t bytes,
                              uint64_t most, uint64_t min_ns, uint64_t tail_ns, jw_window *window,
                              uint64_t *tail_end_ns);

#endif
