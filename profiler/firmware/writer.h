/* Text into a bounded buffer, without printf. What does not fit is cut off. */
#ifndef JW_WRITER_H
#define JW_WRITER_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *text; /* always ends with a zero */
    size_t length, capacity;
} jw_writer;

void jw_writer_begin(jw_writer *writer, char *text, size_t capacity);
void jw_write_text(jw_writer *writer, const char *text);
void jw_write_number(jw_writer *writer, uint64_t number);
void jw_write_hex(jw_writer *writer, uint32_t number); /* eight digits */

/* `key=value` and, between pairs, `separator`. */
void jw_write_pair(jw_writer *writer, char separator, const char *key, const char *value);
void jw_write_count(jw_writer *writer, char separator, const char *key, uint64_t value);

#endif
