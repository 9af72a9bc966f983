/* Storage driver for descriptions without storage: every call fails. */
#include "storage.h"

const char jw_storage_driver[] = "none";

static const char no_storage[] = "this firmware was built for a board without storage";

const char *jw_storage_init(jw_storage_facts *facts) {
    (void)facts;
    return no_storage;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    (void)medium;
    (void)offset;
    (void)bytes;
    return no_storage;
}
