#include "pairs.h"

static void write_key(jw_message *message, char separator, const char *key) {
    const char between[] = {separator, '\0'};
    jw_message_text(message, message->length ? between : "");
    jw_message_text(message, key);
    jw_message_text(message, "=");
}

void jw_write_pair(jw_message *message, char separator, const char *key, const char *value) {
    write_key(message, separator, key);
    jw_message_text(message, value);
}

void jw_write_count(jw_message *message, char separator, const char *key, uint64_t value) {
    write_key(message, separator, key);
    jw_message_number(message, value);
}
