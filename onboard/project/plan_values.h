/* What plan.c does not say of itself: names, and what the kernels may need. Every table ends with a
 * name of NULL. Of plan_values.c a firmware may take nothing at all: plan_addresses.h has the same
 * as constants.
 */
#ifndef PLAN_VALUES_H
#define PLAN_VALUES_H

#include <stdint.h>

#include "execution_plan.h"

typedef struct {
    const char *name;
    uint32_t address, bytes; /* of the arena */
} plan_value;

/* To be brought to their places in front of every step. */
extern const plan_value plan_inputs[];

/* float32; there when a step is over, until the next one begins. */
extern const plan_value plan_losses[];

/* Of what a step leaves to the next one, in the order of jw_plan.kept. */
extern const char *const plan_kept_names[];

/* Of the checksums of a watched step, in the order of jw_plan_memory.probed. */
extern const char *const plan_probe_names[];

/* Of plan.c. The same number is in training.bin. */
extern const uint32_t plan_fingerprint;

/* NULL, or the first operation whose kernel, as it was compiled, needs more workspace than the plan
 * has for it. To be asked once, before anything is run: how much a kernel needs depends on the
 * machine that it is compiled for. */
const char *plan_lacks_workspace(void);

#endif
