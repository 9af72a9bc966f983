/* One training step as a constant table, the ExecutionPlan of devices/plan.py.
 * profiler/building/plan_source.py writes it as C; a microcontroller keeps it in flash.
 */
#ifndef JW_EXECUTION_PLAN_H
#define JW_EXECUTION_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "joulewright.h"

/* Address or size in the arena, in words of four bytes. With JW_SMALL_ARENA, for arenas of less than
 * 256 KiB, tables take little more than half of the flash. */
#ifdef JW_SMALL_ARENA
typedef uint16_t jw_place;
#define JW_NO_PLACE UINT16_MAX
#else
typedef uint32_t jw_place;
#define JW_NO_PLACE UINT32_MAX
#endif

#define JW_PLACE_BYTES 4u /* of a word */

/* Kind of an action. */
typedef enum {
    JW_DO_COMPUTE,  /* run operations[index] */
    JW_DO_PAGE_OUT, /* write the bytes to slots[index] */
    JW_DO_PAGE_IN,  /* read the bytes from slots[index], or from frozen[index]: see jw_copy */
    JW_DO_MOVE,     /* move the bytes to the address moves[index] */
    JW_DO_PROBE,    /* checksum of the bytes, or their packed words, to probed[index] */
    JW_DO_GUARD,    /* fill the bytes with the canary */
    JW_DO_CHECK,    /* check that the bytes still hold the canary */
    JW_DO_POISON,   /* fill the bytes with NaNs */
    JW_DO_SELECT,   /* make selections[index] from the indices in the bytes, and number them anew */
    JW_DO_ROWS_IN,  /* read the selected rows of tables[index] */
    JW_DO_ROWS_OUT  /* write the selected rows of tables[index], which is in RAM */
} jw_verb;

/* The copy that JW_DO_PAGE_IN reads. */
typedef enum {
    JW_OF_THIS_STEP, /* the slot, as this step has written it */
    JW_OF_LAST_STEP, /* the slot, as the last complete step has written it */
    JW_OF_FROZEN     /* a tensor that no step changes */
} jw_copy;

/* An action of a plan. */
typedef struct {
    uint8_t verb;
    uint8_t copy : 2;         /* JW_DO_PAGE_IN: a jw_copy */
    uint8_t asynchronous : 1; /* transfers: later actions need not wait for it */
    uint8_t gradient : 1;     /* JW_DO_PROBE: the bytes are a parameter's gradient */
    uint8_t counted : 1;      /* JW_DO_PROBE: the words that would be left of the bytes, packed */
    uint16_t waits_for; /* the first `waits_for` transfers of the step must be over before it */
    uint16_t index;     /* see jw_verb */
    jw_place address;   /* in the arena; JW_DO_COMPUTE: of the workspace, or JW_NO_PLACE */
    jw_place words;     /* of the bytes; unused by JW_DO_COMPUTE */
} jw_action;

/* A kernel with its attributes and scalars. All calls of the same operation share one. */
typedef struct {
    void (*run)(const jw_call *call);
    const int32_t *attributes;
    const float *scalars;
    uint8_t read_count, write_count;
    uint8_t seeded; /* number of scalars if the last one is a seed, which differs between steps;
                       0 without a seed */
    uint8_t rated;  /* number of scalars if the first one is a learning rate; 0 without one */
} jw_operation;

/* Place in the storage of a page-out, or of a frozen tensor; it takes whole pages. */
typedef struct {
    uint32_t offset; /* from the start of the step's part; of a frozen tensor, of the storage */
    uint32_t bytes;  /* size in RAM */
} jw_slot;

/* Value of an absent row. */
#define JW_NOWHERE UINT32_MAX

/* Number of a kept tensor, or of a slot, that does not exist. */
#define JW_NOT_KEPT UINT16_MAX
#define JW_NO_SLOT UINT16_MAX

/* Size of a step's record: four words, a checksum for each kept tensor, a word for each selected
 * row, and its own checksum (store.h). */
#define JW_STEP_RECORD_BYTES(kept_count, row_count) (4u * (5u + (kept_count) + (row_count)))

/* Size of the record of the frozen values: four words, a checksum for each frozen tensor, and its
 * own checksum. */
#define JW_FROZEN_RECORD_BYTES(frozen_count) JW_STEP_RECORD_BYTES(frozen_count, 0)

/* A tensor that is kept from step to step. If it is a table with its home in storage, `words` and
 * `slot` are those of the rows that a step changes. */
typedef struct {
    jw_place address; /* in the arena between steps; JW_NO_PLACE if its home is storage */
    jw_place words;
    uint16_t slot; /* slot to which every step writes it; JW_NO_SLOT in a plan without paging */
} jw_kept;

/* Rows that the batch of a step selects: rows[first + i] of jw_plan_memory is the row at the
 * position i, or JW_NOWHERE at positions without a row, since the batch has named it before. Before
 * JW_DO_SELECT, the indices in RAM number rows of the tables; after it, they number positions. */
typedef struct {
    uint32_t first, count;
    uint32_t row_count; /* of the tables */
} jw_selection;

/* A tensor of which a step reads only the selected rows, and writes them if it is kept. They lie side
 * by side in RAM, with zeros at positions without a row. */
typedef struct {
    uint32_t offset; /* of its first row in the storage */
    uint32_t row_bytes, row_count;
    jw_place address; /* of its first row in the arena; JW_NO_PLACE if its home is storage */
    uint16_t kept, selection; /* their indices in the plan; JW_NOT_KEPT if no step changes it */
} jw_table;

/* Start of an action, from the start of the step, and its duration. For a transfer, from its own
 * start to its own end. */
typedef struct {
    float start_s, time_s;
} jw_span;

/* RAM of a plan besides its arena, defined with the plan. It has room for what is watched of
 * `watched_count` actions; a watched step of more actions pauses until its caller has read that. */
typedef struct {
    uint32_t *slot_checksums;   /* [slot_count], of this step */
    uint32_t *packed_words;     /* [packed_count], what this step has written to these slots */
    uint32_t *kept_checksums;   /* [kept_count], of the last complete step */
    uint32_t *frozen_checksums; /* [frozen_count] */
    uint32_t *probed;           /* [watched_count] at most, checksums of a watched step */
    jw_span *spans;             /* [watched_count], of a watched step */
    unsigned char *page;        /* [page_bytes], buffer for the last page of a tensor */
    uint32_t *rows;             /* [row_count], of all selections of the newest step */
    unsigned char *row;         /* buffer for the largest row of a table in the storage */
    uint16_t watched_count;
} jw_plan_memory;

/* A plan: its actions, and the tables to which they refer. */
typedef struct {
    const char *name;
    uint32_t arena_bytes;
    const jw_action *actions;
    uint16_t action_count;      /* of all actions */
    uint16_t step_action_count; /* of the first ones, which are the step; the others follow it */
    uint16_t slot_count, kept_count, probe_count, selection_count, table_count, frozen_count;
    uint16_t packed_count;
    const jw_operation *operations;
    const jw_place *operands; /* of all computes in order: addresses of those read, then written */
    const jw_place *moves;
    const jw_slot *slots;
    const uint16_t *packed_slots; /* ascending: what is written to them is packed (packing.h) */
    const jw_kept *kept;
    const jw_selection *selections;
    const jw_table *tables;
    const jw_slot *frozen;
    uint32_t row_count;    /* rows of all selections */
    uint32_t frozen_bytes; /* storage of what no step changes; whole pages and erase blocks */
    uint32_t frozen_record_offset; /* after the values; whole pages and erase blocks */
    uint32_t table_bytes;          /* storage of the tables that steps change; whole pages */
    uint32_t page_bytes;           /* of the storage; 1 without storage */
    uint32_t counted_page_bytes;   /* of the storage for which packed words are counted */
    uint32_t erase_block_bytes;    /* 0: needs no erasing */
    uint32_t step_bytes;    /* storage that one step writes: its slots, then its record, which
                                   makes it valid; whole pages and whole erase blocks */
    uint32_t record_offset; /* of the record within step_bytes; its size is
                                   JW_STEP_RECORD_BYTES, rounded up to whole pages */
    const jw_plan_memory *memory;
} jw_plan;

/* All plans of the program: generated, or in plans_none.c. */
extern const jw_plan *const jw_plans[];
extern const size_t jw_plan_count;

#endif
