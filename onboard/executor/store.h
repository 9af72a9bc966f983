/* The store to which steps page: a range of a medium. What no step changes comes first, then tables;
 * the rest is divided into parts of plan->step_bytes.
 *
 *     part │ slot 0 │ slot 1 │ ... │ record │
 *
 * Every step writes the part after that of the step before it, and the first part after the last,
 * also over several runs, so that the wear of flash is even. A medium that needs no erasing has at
 * most eight parts. A step becomes complete by its record, which is written last. Until then the step
 * before it is the last complete one, with all values that it kept. Flash is erased block by block
 * just before it is written.
 *
 * The record consists of 32-bit words: magic, identity of the plan, run, step, a checksum for each
 * kept tensor, the selected rows, and the checksum of all these. Runs are numbered, so that steps of
 * an earlier run are never taken for newer ones.
 *
 * Tables are too large to be written by every step. A step writes its changed rows to a slot, and
 * its record says which rows these are. Only when it is complete are they written to the table, by
 * jw_store_settle, and before the next step reads a row. A power cut in between leaves slot and
 * record, with which jw_store_settle begins again after jw_store_recover. The step before it is not
 * complete any more from then on. A row takes whole pages; a checksum of its number and its values
 * follows it.
 *
 * Frozen values are written once, before the first run, and only read from then on. Their record
 * follows them: magic, identity of their places, the caller's key of the values, a checksum for each
 * tensor, and its own checksum. Writing other values begins by wiping it. Rows of a frozen table carry
 * their checksums themselves. Whoever else uses the medium may overwrite values and leave the record,
 * so that a start reads all values before it believes them. The identity in the records of steps
 * covers the key, so that steps which were computed with other frozen values are not complete.
 */
#ifndef JW_STORE_H
#define JW_STORE_H

#include <stdbool.h>

#include "execution_plan.h"
#include "medium.h"

/* State of an open store. */
typedef struct {
    /* Since jw_store_open; whole pages, including records. */
    uint64_t bytes_in, bytes_out, erased_blocks;
    const jw_plan *plan;
    jw_medium *medium;
    uint32_t identity;
    uint32_t part_count;
    bool begun;         /* a run has begun: step 0 may be written */
    bool complete;      /* step `step` is complete */
    bool settled;       /* all rows that it has changed are in their tables */
    bool is_frozen;     /* all frozen values are in the storage */
    uint32_t run, step; /* numbers of the last complete step */
    uint32_t part;      /* the part to write next; that of the last complete step is before it */
    uint32_t erased;    /* bytes erased so far, from the start of that part */
    uint32_t frozen_end, frozen_erased; /* bytes of the frozen values written and erased so far */
    uint64_t frozen_key;                /* which values these are */
    char sentence[192];
} jw_store;

/* All functions below that return a string return NULL, or a sentence that says why they failed,
 * which is valid until the next call. `memory` is aligned to four bytes; `readable` is the number
 * of bytes that may be read there, at least those of the slot. */

/* Open a store in which no step is complete. Fails if the medium's range is too small, or its page
 * or erase block does not divide the plan's. From then on the store uses the plan's `page` and
 * checksums. */
const char *jw_store_open(jw_store *store, const jw_plan *plan, jw_medium *medium);

/* Begin to write the frozen values, before the first initial value. `key` names them: other values
 * have another key. If the storage holds those of this key already, store->is_frozen is true and the
 * calls for single values write nothing; else it holds no complete step from now on. */
const char *jw_store_begin_frozen(jw_store *store, uint64_t key);

/* Read a frozen tensor, or some rows of a frozen table, if store->is_frozen, before the first value is
 * written. If it is not what was written, all frozen values must be written again: store->is_frozen
 * is false from then on. For rows, `room` is as for jw_store_keep_rows. */
const char *jw_store_verify_frozen(jw_store *store, uint16_t frozen, void *memory);
const char *jw_store_verify_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                                 void *memory, size_t room);

/* Write a frozen tensor. All of them, then all frozen tables (jw_store_keep_rows), in the order of
 * their numbers. */
const char *jw_store_freeze(jw_store *store, uint16_t frozen, void *memory, size_t readable);

/* Write the initial value of a kept tensor, each once; the first one begins a run. */
const char *jw_store_keep(jw_store *store, uint16_t kept, void *memory, size_t readable);

/* Complete the step whose slots were written since the last complete one. The initial values are
 * step 0 of a run. */
const char *jw_store_complete(jw_store *store);

/* Find the last complete step of this plan; store->step is its number. The storage was read and has
 * none if the answer is jw_store_has_no_step itself. */
const char *jw_store_recover(jw_store *store);

extern const char jw_store_has_no_step[];

/* Number of rows of a table that jw_store_keep_rows and jw_store_fetch_rows transfer at once in
 * `room` bytes; at least one. */
uint32_t jw_store_rows_in(const jw_store *store, uint16_t table, size_t room);

/* Write initial values of `count` rows of a table, from row `first` on, side by side in memory of
 * `room` bytes, all of which may be overwritten. The first call begins a run, and makes all steps of
 * earlier runs incomplete, since the table was theirs; but rows of a frozen table are frozen values. */
const char *jw_store_keep_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                               void *memory, size_t room);

/* Read `count` rows of a table as the last complete step has left them, from row `first` on, to
 * memory of `room` bytes. */
const char *jw_store_fetch_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                                void *memory, size_t room);

/* Write the rows that the last complete step has changed to their tables, unless that is done. */
const char *jw_store_settle(jw_store *store);

/* Read the selected rows of a table to adjacent places; the store must be settled. */
const char *jw_store_page_in_rows(jw_store *store, uint16_t table, void *memory);

/* Read the value of a kept tensor from the last complete step; of a table, its changed rows. */
const char *jw_store_fetch(jw_store *store, uint16_t kept, void *memory);

/* Begin to write a step; slots that a failed step has written are discarded. */
void jw_store_begin_step(jw_store *store);

/* Write a slot of the current step. */
const char *jw_store_page_out(jw_store *store, uint16_t slot, void *memory, size_t readable);

/* Read a copy of a slot, or a frozen tensor. */
const char *jw_store_page_in(jw_store *store, uint16_t index, jw_copy copy, void *memory);

#endif
