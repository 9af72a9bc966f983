/* Limits the memory of the process while steps run. */
#ifndef JW_LINUX_REPLAY_LIMIT_H
#define JW_LINUX_REPLAY_LIMIT_H

#include <stdint.h>

/* Limit the address space of the process (RLIMIT_AS) to its current size, after allocating memory
 * that is otherwise allocated on first use: the stack, a BLAS's buffers and heap. Returns the limit
 * in bytes. Exits with JW_EXIT_MEMORY if it cannot be set. */
uint64_t jw_limit_memory(void);

/* Restore the limit before jw_limit_memory. */
void jw_unlimit_memory(void);

/* Peak of resident memory since jw_limit_memory; since the process began if the kernel cannot reset
 * it. */
uint64_t jw_peak_resident_bytes(void);

#endif
