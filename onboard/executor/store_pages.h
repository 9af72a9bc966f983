/* The storage as its store sees it: parts, whole pages, and what is said when they fail. */
#ifndef JW_STORE_PAGES_H
#define JW_STORE_PAGES_H

#include "message.h"
#include "store.h"

uint32_t jw_store_rounded_up(uint32_t bytes, uint32_t unit);
uint64_t jw_store_part_begin(const jw_store *store, uint32_t part);

/* Begins the store's sentence: `slot 3 at byte 4096 of the storage `. */
jw_message jw_store_about(jw_store *store, const char *what, uint32_t number, uint64_t offset);

/* The whole sentence; NULL where there is nothing to explain, `why` being NULL. */
const char *jw_store_explain(jw_store *store, const char *what, uint32_t number, uint64_t offset,
                             const char *cannot, const char *why);

/* All below: NULL, or what the medium says.
 *
 * Of the part that is written, up to `end`, all in one go from where the last time has ended. */
const char *jw_store_erase_up_to(jw_store *store, uint32_t end);

/* To `offset` in the part that is written; erases first. */
const char *jw_store_write_pages(jw_store *store, uint32_t offset, void *memory, uint32_t bytes,
                                 size_t readable);

/* From `at`, counted from the storage's begin. */
const char *jw_store_read_pages(jw_store *store, uint64_t at, void *memory, uint32_t bytes);

#endif
