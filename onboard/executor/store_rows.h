/* Rows of tables in the store, and the rows that steps select. */
#ifndef JW_STORE_ROWS_H
#define JW_STORE_ROWS_H

#include "store.h"

/* Whether the plan has tables with their home in storage that steps change. */
bool jw_store_has_tables(const jw_plan *plan);

/* Bytes from one row of a table to the next in the storage. */
uint32_t jw_store_row_stride(const jw_plan *plan, const jw_table *table);

/* Let no row be selected. */
void jw_store_forget_rows(jw_store *store);

/* Begin a run; defined in store.c. Returns NULL, or the store's error message. */
const char *jw_store_begin_run(jw_store *store);

#endif
