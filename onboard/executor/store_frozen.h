/* The frozen values in the store, which no step changes. */
#ifndef JW_STORE_FROZEN_H
#define JW_STORE_FROZEN_H

#include "store.h"

/* Whether the plan has frozen values with their home in storage. */
bool jw_store_has_frozen(const jw_plan *plan);

/* What the records of steps must state; defined in store.c. Steps belong to the frozen values with
 * which they were computed. */
uint32_t jw_store_identity(const jw_store *store);

/* All functions below return NULL, or the store's error message. */

/* Require that the frozen values are in the storage, if the plan has any. */
const char *jw_store_require_frozen(jw_store *store);

/* Find the frozen values in the storage, if the plan has any. */
const char *jw_store_recover_frozen(jw_store *store);

/* Wipe the record of the frozen values: all must be written again. */
const char *jw_store_forget_frozen(jw_store *store);

/* Begin to write frozen bytes at `at`, which must follow those written before; erase their place. */
const char *jw_store_begin_freezing(jw_store *store, uint64_t at, uint32_t bytes);

/* Note that the frozen bytes up to `end` are written; after the last ones, write the record. */
const char *jw_store_frozen_up_to(jw_store *store, uint64_t end);

/* Read a frozen tensor. */
const char *jw_store_page_in_frozen(jw_store *store, uint16_t frozen, void *memory);

#endif
