/* That steps have the memory they were given, and no more. */
#ifndef JW_LINUX_REPLAY_LIMIT_H
#define JW_LINUX_REPLAY_LIMIT_H

#include <stdint.h>

/* Sets the process's address space (RLIMIT_AS) to what it has now, once all that is only allocated
 * when it is first used is there: the stack, a BLAS's buffers. Returns that limit. Exits with
 * JW_EXIT_MEMORY where it cannot be set. */
uint64_t jw_limit_memory(void);

/* As much again as before. */
void jw_unlimit_memory(void);

/* The most that was resident since jw_limit_memory, or since the process began where the kernel
 * cannot forget what was before. */
uint64_t jw_peak_resident_bytes(void);

#endif
