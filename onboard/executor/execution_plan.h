/* One training step as a constant table, the ExecutionPlan of devices/plan.py.
 * profiler/building/plan_source.py writes it as C; a microcontroller keeps it in flash.
 */
#ifndef JW_EXECUTION_PLAN_H
#define JW_EXECUTION_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "joulewright.h"

/* Kind of an action. */
typedef enum {
    JW_DO_COMPUTE,  /* run computes[index] */
    JW_DO_PAGE_OUT, /* write the bytes to slots[index] */
    JW_DO_PAGE_IN,  /* read the bytes from slots[index] */
    JW_DO_MOVE,     /* move the bytes to the address `to` */
    JW_DO_PROBE,    /* checksum of the bytes, to probed[index] */
    JW_DO_GUARD,    /* fill the bytes with the canary */
    JW_DO_CHECK,    /* check that the bytes still hold the canary */
    JW_DO_POISON    /* fill the bytes with NaNs */
} jw_verb;

/* An action of a plan. */
typedef struct {
    uint8_t verb;
    uint8_t last_step;    /* JW_DO_PAGE_IN: read the copy written by the last complete step */
    uint8_t asynchronous; /* transfers: later actions need not wait for it */
    uint8_t unused;
    uint16_t waits_for; /* the first `waits_for` transfers of the step must be over before it */
    uint16_t index;     /* see jw_verb */
    uint32_t address, bytes; /* in the arena; unused by JW_DO_COMPUTE */
    uint32_t to;             /* JW_DO_MOVE: address in the arena */
} jw_action;

/* A call of a kernel. */
typedef struct {
    void (*run)(const jw_call *call);
    const int32_t *attributes;
    const float *scalars;
    const uint32_t *operands; /* addresses in the arena: those read, then those written */
    uint32_t workspace;       /* address in the arena, or JW_NOWHERE */
    uint8_t read_count, write_count;
    uint8_t seeded; /* number of scalars if the last one is a seed, which differs between steps;
                       0 without a seed */
} jw_compute;

/* Place of a page-out in the step's part of the storage; it takes whole pages. */
typedef struct {
    uint32_t offset; /* from the start of the part */
    uint32_t bytes;  /* size in RAM */
} jw_slot;

/* Value of an absent address or slot. */
#define JW_NOWHERE UINT32_MAX

/* Size of a step's record: four words, a checksum for each kept tensor, and its own (store.h). */
#define JW_STEP_RECORD_BYTES(kept_count) (4u * (5u + (kept_count)))

/* A tensor that is kept from step to step. */
typedef struct {
    uint32_t address; /* in the arena between steps; JW_NOWHERE if its home is storage */
    uint32_t bytes;
    uint32_t slot; /* slot to which every step writes it; JW_NOWHERE in a plan without paging */
} jw_kept;

/* Start of an action, from the start of the step, and its duration. For a transfer, from its own
 * start to its own end. */
typedef struct {
    float start_s, time_s;
} jw_span;

/* RAM of a plan besides its arena, defined with the plan. */
typedef struct {
    uint32_t *slot_checksums; /* [slot_count], of this step */
    uint32_t *kept_checksums; /* [kept_count], of the last complete step */
    uint32_t *probed;         /* [probe_count], checksums of a watched step */
    jw_span *spans;           /* [action_count], of a watched step */
    unsigned char *page;      /* [page_bytes], buffer for the last page of a tensor */
} jw_plan_memory;

/* A plan: its actions, and the tables to which they refer. */
typedef struct {
    const char *name;
    uint32_t arena_bytes;
    const jw_action *actions;
    uint16_t action_count;      /* of all actions */
    uint16_t step_action_count; /* of the first ones, which are the step; the others follow it */
    uint16_t slot_count, kept_count, probe_count;
    const jw_compute *computes;
    const jw_slot *slots;
    const jw_kept *kept;
    uint32_t page_bytes;        /* of the storage; 1 without storage */
    uint32_t erase_block_bytes; /* 0: needs no erasing */
    uint32_t step_bytes;        /* storage that one step writes: its slots, then its record, which
                                   makes it valid; whole pages and whole erase blocks */
    uint32_t record_offset;     /* of the record within step_bytes; its size is
                                   JW_STEP_RECORD_BYTES(kept_count), rounded up to whole pages */
    const jw_plan_memory *memory;
} jw_plan;

/* All plans of the program: generated, or in plans_none.c. */
extern const jw_plan *const jw_plans[];
extern const size_t jw_plan_count;

#endif
