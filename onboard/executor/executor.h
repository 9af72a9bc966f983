/* Runs the steps of an execution plan in an arena. No allocation, no input or output of its own. */
#ifndef JW_EXECUTOR_H
#define JW_EXECUTOR_H

#include <stdbool.h>

#include "execution_plan.h"
#include "store.h"

/* Carries transfers out beside the computing, one after the other. */
typedef struct jw_channel jw_channel;
struct jw_channel {
    void (*submit)(jw_channel *channel, const jw_action *transfer);
    /* Until no more than `left` of those submitted are under way. NULL, or the sentence of the
     * first that went wrong, which is `failed`; what was submitted behind it is then left undone,
     * and nothing is under way any more. */
    const char *(*wait)(jw_channel *channel, uint16_t left, const jw_action **failed);
};

typedef struct {
    /* To be set before jw_executor_begin. */
    const jw_plan *plan;
    unsigned char *arena;              /* plan->arena_bytes, aligned to 64 bytes */
    uint32_t room_before, room_behind; /* beside the arena, for canaries; multiples of four */
    jw_store *store;                   /* open; NULL where the plan has no slots */
    jw_channel *channel;               /* NULL: transfers are done at once */
    uint64_t (*clock_ns)(void);        /* NULL: no spans, and no blocked_ns */
    uint64_t (*running_ns)(void);      /* for which this thread had a processor */
    uint32_t steps;                    /* begun so far: every step moves the seeds on */

    /* To be read behind a step. */
    uint64_t blocked_ns;     /* waited for transfers without a processor, `afterwards` left out */
    const jw_action *failed; /* the action that went wrong, if it was one's fault */

    /* The executor's own. */
    uint64_t begin_ns;
    bool watched;
    uint16_t submitted, over; /* transfers of this step */
} jw_executor;

/* Fills the arena with a pattern that jw_touched_bytes looks for, and what is beside it with the
 * canary. NULL, or why the plan cannot be run so. */
const char *jw_executor_begin(jw_executor *executor);

/* One step, inputs being in their places. With `watched`, spans and checksums are kept. NULL, or
 * why it ended in the middle: what the last complete step has left in the store is then intact,
 * what is in RAM is not. A canary that is damaged was so by the operation in front of the action
 * `failed`, which looked. */
const char *jw_executor_step(jw_executor *executor, bool watched);

/* What belongs behind every step, outside of its time; the step is complete only then. */
const char *jw_executor_afterwards(jw_executor *executor);

/* The arena's high-water mark: how far from its begin it was ever written. */
uint32_t jw_touched_bytes(const jw_executor *executor);

/* One transfer: what a channel calls, in any thread. */
const char *jw_executor_transfer(const jw_executor *executor, const jw_action *transfer);

#endif
