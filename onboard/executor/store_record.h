/* The records that make steps complete. */
#ifndef JW_STORE_RECORD_H
#define JW_STORE_RECORD_H

#include "store.h"

typedef struct {
    bool valid;
    uint32_t run, step;
} jw_record_found;

/* All below: NULL, or the store's sentence.
 *
 * Page by page, of what `store` says to be complete, to the part that is written. */
const char *jw_store_write_record(jw_store *store);

/* With `take`, the checksums of what is kept go to the plan's memory. */
const char *jw_store_read_record(jw_store *store, uint32_t part, bool take, jw_record_found *found);

typedef struct {
    jw_record_found record;
    uint32_t part;       /* the last one where no record is valid */
    uint32_t unreadable; /* records, which may be readable again later */
} jw_newest_record;

/* Of all parts. */
const char *jw_store_find_newest(jw_store *store, jw_newest_record *newest);

#endif
