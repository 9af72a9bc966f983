/* Text in a buffer, without stdio. What does not fit is cut off. */
#ifndef JW_MESSAGE_H
#define JW_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *text; /* always ends with a zero */
    size_t capacity, length;
} jw_message;

void jw_message_begin(jw_message *message, char *text, size_t capacity);
void jw_message_text(jw_message *message, const char *text);
void jw_message_number(jw_message *message, uint64_t number);

/* Eight hexadecimal digits. */
void jw_message_bits(jw_message *message, uint32_t bits);

#endif
