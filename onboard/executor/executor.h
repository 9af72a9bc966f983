/* Runs the steps of an execution plan in an arena; allocates nothing, does no input or output. */
#ifndef JW_EXECUTOR_H
#define JW_EXECUTOR_H

#include <stdbool.h>

#include "execution_plan.h"
#include "store.h"

/* Carries out asynchronous transfers in the background, one after the other. */
typedef struct jw_channel jw_channel;
struct jw_channel {
    /* Append `transfer` to the queue. */
    void (*submit)(jw_channel *channel, const jw_action *transfer);
    /* Wait until at most `left` of the submitted transfers are unfinished. Returns NULL, or the
     * error of the first transfer that failed, stored in `failed`. After a failure, the transfers
     * submitted after it are discarded, and none is unfinished. */
    const char *(*wait)(jw_channel *channel, uint16_t left, const jw_action **failed);
    /* Whether `wait` would return at once. */
    bool (*is_over)(jw_channel *channel, uint16_t left);
};

/* An executor of one plan. */
typedef struct {
    /* Set by the caller before jw_executor_begin. */
    const jw_plan *plan;
    unsigned char *arena;             /* plan->arena_bytes, aligned to 64 bytes */
    uint32_t room_before, room_after; /* bytes on both sides of the arena, for canaries; multiples
                                          of four */
    jw_store *store;                  /* open; NULL where the plan has no slots */
    jw_channel *channel;              /* NULL: every transfer is synchronous */
    uint64_t (*clock_ns)(void);       /* NULL: no spans and no blocked_ns */
    uint64_t (*running_ns)(void);     /* processor time of the step; NULL: blocked_ns has no waits
                                          for transfers beside ops */
    uint64_t (*working_ns)(void);     /* that of the calling thread; NULL: no transfer_ns, and
                                          blocked_ns has no other transfers */
    uint32_t steps;                   /* steps begun so far, from which seeds follow */
    const float *learning_rate;       /* of all updates; NULL: as the plan states it */
    /* Called with each gradient before the update that reads it; NULL: none is wanted. */
    void (*take_gradient)(void *taker, const unsigned char *gradient, uint32_t bytes);
    void *taker;

    /* Results of a step. */
    uint64_t blocked_ns;     /* time spent waiting for transfers without using a processor, except
                                in jw_executor_afterwards */
    uint64_t transfer_ns;    /* processor time of transfers of all steps, with this exception */
    const jw_action *failed; /* the action that failed; NULL if no single action did */

    /* What plan->memory holds of a watched step: spans of the actions [first, next), and checksums
     * of the probes [first_probe, next_probe). */
    uint16_t first, next, first_probe, next_probe;

    /* Private. */
    uint64_t begin_ns, paused_ns;
    const jw_place *operands; /* of the next operation */
    bool watched;
    uint16_t submitted, over; /* transfers of this step */
} jw_executor;

/* Fill the arena with the pattern that jw_touched_bytes looks for, and the room on both sides with
 * canaries. Returns NULL, or why the plan cannot be run. */
const char *jw_executor_begin(jw_executor *executor);

/* Run one step; the inputs must be at their addresses. With `watched`, spans and checksums are
 * kept in plan->memory; if it has no room for all, the step pauses. Returns NULL, or why the step
 * failed. After a failure, the values of the last complete step in the store are intact, but those
 * in RAM are not. A damaged canary was overwritten by the operation before the action `failed`,
 * which checked it. */
const char *jw_executor_step(jw_executor *executor, bool watched);

/* Whether the step waits for jw_executor_resume, which overwrites the spans and checksums. */
bool jw_executor_is_paused(const jw_executor *executor);

/* Whether all actions of the step have run, except those after it. */
bool jw_executor_is_over(const jw_executor *executor);

/* Go on with a paused step that is not over; one that is over goes on with
 * jw_executor_afterwards. Returns NULL, or why the step failed. Pauses are not part of its time. */
const char *jw_executor_resume(jw_executor *executor);

/* Run the actions after a step, which are not part of its time; they complete the step, unless it
 * pauses once more. Returns NULL, or why they failed. */
const char *jw_executor_afterwards(jw_executor *executor);

/* High-water mark: bytes from the start of the arena up to the last one that was written. */
uint32_t jw_touched_bytes(const jw_executor *executor);

/* Carry out one transfer; called by channels, from any thread. Returns NULL, or why it failed. */
const char *jw_executor_transfer(jw_executor *executor, const jw_action *transfer);

#endif
