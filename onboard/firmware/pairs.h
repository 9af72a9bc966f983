/* `key=value` and, in front of all but the first, a separator. */
#ifndef JW_PAIRS_H
#define JW_PAIRS_H

#include "message.h"

void jw_write_pair(jw_message *message, char separator, const char *key, const char *value);
void jw_write_count(jw_message *message, char separator, const char *key, uint64_t value);

#endif
