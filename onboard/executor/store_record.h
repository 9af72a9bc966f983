/* Reads and writes the records that make steps complete. */
#ifndef JW_STORE_RECORD_H
#define JW_STORE_RECORD_H

#include "store.h"

/* Contents of a record. */
typedef struct {
    bool valid;
    uint32_t run, step;
} jw_record_found;

/* A record: its head, and words of RAM that it saves. It ends with its checksum. */
typedef struct {
    uint64_t at; /* in the storage */
    uint32_t magic, identity;
    uint32_t numbers[2];
    struct {
        uint32_t *words;
        uint32_t count;
    } saved[2];
} jw_saved_record;

/* Write a record page by page, the first one last. Returns NULL, or the medium's error message. */
const char *jw_store_save(jw_store *store, const jw_saved_record *record);

/* Read a record, whose magic and identity must be as in `record`; numbers[] are set. With `take`, the
 * words of RAM are set too. `*valid` says whether it is whole. Returns NULL, or the medium's error
 * message. */
const char *jw_store_load(jw_store *store, jw_saved_record *record, bool take, bool *valid);

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
