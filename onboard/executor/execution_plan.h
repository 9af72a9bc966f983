/* One training step as a table: what devices/plan.py calls an ExecutionPlan. Written as C by
 * profiler/building/plan_source.py, constant, so that a microcontroller keeps it in flash.
 */
#ifndef JW_EXECUTION_PLAN_H
#define JW_EXECUTION_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "joulewright.h"

typedef enum {
    JW_DO_COMPUTE,  /* index: of computes */
    JW_DO_PAGE_OUT, /* index: of slots */
    JW_DO_PAGE_IN,  /* index: of slots */
    JW_DO_MOVE,     /* to: another address */
    JW_DO_PROBE,    /* index: of checksums */
    JW_DO_GUARD,    /* write the canary over the bytes */
    JW_DO_CHECK,    /* the canary must still be there */
    JW_DO_POISON    /* fill the bytes with NaNs */
} jw_verb;

typedef struct {
    uint8_t verb;
    uint8_t last_step;    /* JW_DO_PAGE_IN: the copy that the last complete step has written */
    uint8_t asynchronous; /* of a transfer: what follows need not wait for it */
    uint8_t unused;
    uint16_t waits_for; /* so many transfers of this step are over before it begins */
    uint16_t index;
    uint32_t address, bytes; /* of the arena; not of JW_DO_COMPUTE */
    uint32_t to;
} jw_action;

typedef struct {
    void (*run)(const jw_call *call);
    const int32_t *attributes;
    const float *scalars;
    const uint32_t *operands; /* addresses of what is read, then of what is written */
    uint32_t workspace;       /* its address, or JW_NOWHERE */
    uint8_t read_count, write_count;
    uint8_t seeded; /* so many scalars, of which the last is a seed that differs from step to step;
                       0: they are the same in every step */
} jw_compute;

/* Where a transfer out of a step goes, from the begin of the step's part of the storage on; whole
 * pages. */
typedef struct {
    uint32_t offset, bytes; /* bytes as they are in RAM */
} jw_slot;

#define JW_NOWHERE UINT32_MAX

/* The record of a step: four words, a checksum for everything kept, and its own (store.h). */
#define JW_STEP_RECORD_BYTES(kept_count) (4u * (5u + (kept_count)))

/* What a step leaves to the next one. */
typedef struct {
    uint32_t address; /* in RAM between steps, or JW_NOWHERE */
    uint32_t bytes;
    uint32_t slot; /* where every step writes it, or JW_NOWHERE in a plan that does not page */
} jw_kept;

/* When an action was carried out, in seconds from the step's begin; a transfer from its own begin
 * to its own end. */
typedef struct {
    float start_s, time_s;
} jw_span;

/* RAM that a plan takes besides its arena: written in the same file, sized by the plan. */
typedef struct {
    uint32_t *slot_checksums; /* [slot_count], of this step */
    uint32_t *kept_checksums; /* [kept_count], of the last complete step */
    uint32_t *probed;         /* [probe_count] */
    jw_span *spans;           /* [action_count] */
    unsigned char *page;      /* [page_bytes]: the last page of a tensor that ends within one */
} jw_plan_memory;

typedef struct {
    const char *name;
    uint32_t arena_bytes;
    const jw_action *actions;
    uint16_t action_count;      /* all */
    uint16_t step_action_count; /* the first ones are the step, the rest is done behind it */
    uint16_t slot_count, kept_count, probe_count;
    const jw_compute *computes;
    const jw_slot *slots;
    const jw_kept *kept;
    uint32_t page_bytes;        /* of the storage; 1 where there is none */
    uint32_t erase_block_bytes; /* 0: nothing is erased */
    uint32_t step_bytes;        /* of storage that one step writes: its slots, then its record,
                                   which makes it valid; whole pages, whole erase blocks */
    uint32_t record_offset;     /* where that record is, within step_bytes; it takes
                                   JW_STEP_RECORD_BYTES(kept_count), rounded up to whole pages */
    const jw_plan_memory *memory;
} jw_plan;

/* In the file with the plans, or in plans_none.c. */
extern const jw_plan *const jw_plans[];
extern const size_t jw_plan_count;

#endif
