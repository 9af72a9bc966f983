/* Names of the plan's values, and a check of the workspace. Every table ends with a NULL name.
 * Firmware may do without plan_values.c: plan_addresses.h has the addresses as constants.
 */
#ifndef PLAN_VALUES_H
#define PLAN_VALUES_H

#include <stdint.h>

#include "execution_plan.h"

/* A named block of the arena. */
typedef struct {
    const char *name;
    uint32_t address, bytes; /* in the arena */
} plan_value;

/* Inputs, to be written to their addresses before every step. */
extern const plan_value plan_inputs[];

/* Losses, float32, valid after a step until the next one begins. */
extern const plan_value plan_losses[];

/* Names of kept tensors, in the order of jw_plan.kept. */
extern const char *const plan_kept_names[];

/* Names of frozen tensors, in the order of jw_plan.frozen. */
extern const char *const plan_frozen_names[];

/* Names of a watched step's checksums, in the order of jw_plan_memory.probed. */
extern const char *const plan_probe_names[];

/* CRC-32 of plan.c, which is also in training.bin. */
extern const uint32_t plan_fingerprint;

/* Learning rate of a step, the first being 0; NULL: that of the plan. */
const float *plan_learning_rate(uint32_t step);

/* Name of the first operation whose compiled kernel needs more workspace than the plan has; NULL if
 * there is none. Call it once before the first step: the workspace of a kernel depends on the
 * machine that it is compiled for. */
const char *plan_lacks_workspace(void);

#endif
