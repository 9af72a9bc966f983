/* Runs the steps of an execution plan in an arena. No allocation, no input or output of its own. */
#ifndef JW_EXECUTOR_H
#define JW_EXECUTOR_H

#include <stdbool.h>

#include "execution_plan.h"
#include "store.h"

typedef struct jw_executor {
    const jw_plan *plan;
    unsigned char *arena;
    jw_store *store;           /* NULL where the plan does not page */
    uint64_t (*clock_ns)(void); /* for spans */
    const jw_action *failed;   /* the action that went wrong, after an error */
} jw_executor;

/* Fills the arena with a pattern that jw_touched_bytes looks for. */
void jw_executor_begin(jw_executor *executor, const jw_plan *plan, unsigned char *arena,
                       jw_store *store, uint64_t (*clock_ns)(void));

/* One step, inputs being in their places. With `watched`, spans and checksums are kept. NULL, or
 * why it ended in the middle: what the last complete step has left in the store is then intact.
 *
 * The step's own part ends before `afterwards`. */
const char *jw_executor_step(jw_executor *executor, bool watched);
const char *jw_executor_afterwards(jw_executor *executor, bool watched);

/* The arena's high-water mark: how far from its begin it was ever written. */
size_t jw_touched_bytes(const jw_executor *executor);

#endif
