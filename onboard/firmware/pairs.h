/* Append `key=value` to a message, after a separator unless the message is empty. */
#ifndef JW_PAIRS_H
#define JW_PAIRS_H

#include "message.h"

void jw_write_pair(jw_message *message, char separator, const char *key, const char *value);
void jw_write_count(jw_message *message, char separator, const char *key, uint64_t value);

#endif
