/* Reads and writes the records that make steps complete. */
#ifndef JW_STORE_RECORD_H
#define JW_STORE_RECORD_H

#include "store.h"

/* Contents of a record. */
typedef struct {
    bool valid;
    uint32_t run, step;
} jw_record_found;

/* All functions below return NULL, or the store's error message. */

/* Write the record of store->step to the part being written, page by page. */
const char *jw_store_write_record(jw_store *store);

/* Read the record of `part`; with `take`, copy its checksums and rows to plan->memory. */
const char *jw_store_read_record(jw_store *store, uint32_t part, bool take, jw_record_found *found);

/* Make the step of a part incomplete, or those of all parts, on a medium that needs no erasing. */
const char *jw_store_wipe_record(jw_store *store, uint32_t part);
const char *jw_store_wipe_records(jw_store *store);

/* The newest record of all parts. */
typedef struct {
    jw_record_found record;
    uint32_t part;       /* the last part if no record is valid */
    uint32_t unreadable; /* number of unreadable records, which may become readable later */
} jw_newest_record;

/* Find the newest valid record of all parts. Fails only if no record can be read. */
const char *jw_store_find_newest(jw_store *store, jw_newest_record *newest);

#endif
