/* Access of the store to its medium: parts, whole pages, and error messages. */
#ifndef JW_STORE_PAGES_H
#define JW_STORE_PAGES_H

#include "message.h"
#include "store.h"

/* `bytes` rounded up to a multiple of `unit`. */
uint32_t jw_store_rounded_up(uint32_t bytes, uint32_t unit);

/* Offset of a part in the medium's range. */
uint64_t jw_store_part_begin(const jw_store *store, uint32_t part);

/* The part of the step before that of `part`. */
uint32_t jw_store_part_before(const jw_store *store, uint32_t part);

/* Begin the store's error message: `slot 3 at byte 4096 of the storage `. */
jw_message jw_store_about(jw_store *store, const char *what, uint32_t number, uint64_t offset);

/* Write the whole error message; NULL if `why` is NULL, since nothing failed. */
const char *jw_store_explain(jw_store *store, const char *what, uint32_t number, uint64_t offset,
                             const char *cannot, const char *why);

/* All functions below return NULL, or the medium's error message. */

/* Erase whole blocks, on a medium that needs it; `at` counts from the start of the storage. */
const char *jw_store_erase(jw_store *store, uint64_t at, uint32_t bytes);

/* Erase the part being written up to `end`, from where the last erase ended. */
const char *jw_store_erase_up_to(jw_store *store, uint32_t end);

/* Write to `at`, counted from the start of the storage; it must be erased. */
const char *jw_store_write_pages(jw_store *store, uint64_t at, void *memory, uint32_t bytes,
                                 size_t readable);

/* Read from `at`, counted from the start of the storage, and compare the checksum. Returns NULL, or
 * the store's error message about `what` and its number. */
const char *jw_store_read_checked(jw_store *store, const char *what, uint32_t number, uint64_t at,
                                  void *memory, uint32_t bytes, uint32_t checksum);

#endif
