/* Carries out asynchronous transfers in a thread. */
#ifndef JW_LINUX_REPLAY_CHANNEL_H
#define JW_LINUX_REPLAY_CHANNEL_H

#include "executor.h"

/* Open a channel for the executor's plan; NULL if the plan has no asynchronous transfers. Exits with
 * JW_EXIT_MEMORY if no thread can be started.
 *
 * Its thread runs on the processor of the calling thread, on which transfers were profiled. On
 * another one, each hand-over would wake a processor that sleeps, and transfers would take longer
 * where storage interrupts the first. Its processor time counts as that of the calling thread. */
jw_channel *jw_linux_channel_open(jw_executor *executor);

/* End the thread, when no transfer is under way; does nothing for NULL. */
void jw_linux_channel_close(jw_channel *channel);

/* Time of handing over a transfer of nothing, and of waiting for it as the executor does: system calls
 * and changes of threads. Median of a thousand, which take some 20 ms, after a warm-up of 50 ms. */
uint64_t jw_linux_handover_ns(void);

#endif
