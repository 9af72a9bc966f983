/* Carries out asynchronous transfers in a thread. */
#ifndef JW_LINUX_REPLAY_CHANNEL_H
#define JW_LINUX_REPLAY_CHANNEL_H

#include "executor.h"

/* Open a channel for the executor's plan, with a thread on `processor` if the system allows it.
 * NULL if the plan has no asynchronous transfers. Exits with JW_EXIT_MEMORY if no thread can be
 * started. */
jw_channel *jw_linux_channel_open(const jw_executor *executor, int processor);

/* End the thread, when no transfer is under way; does nothing for NULL. */
void jw_linux_channel_close(jw_channel *channel);

#endif
