/* Where steps page to: a medium's stretch, cut into parts of plan->step_bytes.
 *
 *     part │ slot 0 │ slot 1 │ ... │ record │
 *
 * Every step writes the part behind that of the step before it, from one end of the stretch to the
 * other and again, also over several runs: wear is even. A step becomes complete by its record,
 * which is written last; until then the one before it is, with all that it has left. Flash is
 * erased block by block as the writing reaches it.
 *
 * The record: magic, identity of the plan, run, step, a checksum for everything kept, and the
 * checksum of all this; 32-bit words. Runs are counted, so that what an earlier one has left is
 * never taken for newer.
 */
#ifndef JW_STORE_H
#define JW_STORE_H

#include <stdbool.h>

#include "execution_plan.h"
#include "medium.h"

typedef struct {
    /* Whole pages, records among them, since jw_store_open. */
    uint64_t bytes_in, bytes_out, erased_blocks;
    const jw_plan *plan;
    jw_medium *medium;
    uint32_t identity;
    uint32_t part_count;
    bool begun;         /* a run: step 0 may be written */
    bool complete;      /* step `step` is */
    uint32_t run, step; /* of the last complete step */
    uint32_t part;      /* that is written next; the last complete step's is the one before it */
    uint32_t erased;    /* so many bytes from that part's begin on */
    char sentence[192];
} jw_store;

/* All below: NULL, or the sentence that says why not, which is there until the next call. `memory`
 * is aligned to four bytes; `readable` bytes may be read there, at least those of the slot. */

/* No step is complete yet. Refuses a stretch that is too small or laid out otherwise than the plan.
 * The plan's `page` and checksums are the store's from now on. */
const char *jw_store_open(jw_store *store, const jw_plan *plan, jw_medium *medium);

/* An initial value, each once; the first one begins a run. */
const char *jw_store_keep(jw_store *store, uint16_t kept, void *memory, size_t readable);

/* What was written since the last complete step is the next complete one: step 0 of a run. */
const char *jw_store_complete(jw_store *store);

/* Looks for the last complete step of this plan; store->step is its number. */
const char *jw_store_recover(jw_store *store);

/* Something kept, as the last complete step has left it. */
const char *jw_store_fetch(jw_store *store, uint16_t kept, void *memory);

/* Nothing of the step is written so far, whatever became of an earlier try. */
void jw_store_begin_step(jw_store *store);

const char *jw_store_page_out(jw_store *store, uint16_t slot, void *memory, size_t readable);

/* `last_step`: as the last complete step has left it, else as this one has. */
const char *jw_store_page_in(jw_store *store, uint16_t slot, bool last_step, void *memory);

#endif
