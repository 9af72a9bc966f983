/* Transfers in a thread of their own, beside the computing. */
#ifndef JW_LINUX_REPLAY_CHANNEL_H
#define JW_LINUX_REPLAY_CHANNEL_H

#include "executor.h"

/* For the executor's plan, with a thread on `processor` where it may have that. NULL where the plan
 * has no asynchronous transfers. Exits with JW_EXIT_MEMORY where there is no thread to be had. */
jw_channel *jw_linux_channel_open(const jw_executor *executor, int processor);

/* Ends the thread; nothing is under way. NULL is none. */
void jw_linux_channel_close(jw_channel *channel);

#endif
