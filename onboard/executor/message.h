/* Builds text in a buffer without stdio; text that does not fit is cut off. */
#ifndef JW_MESSAGE_H
#define JW_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

/* A text being built; sizes in bytes. */
typedef struct {
    char *text; /* always terminated by a zero */
    size_t capacity, length;
} jw_message;

/* Begin an empty text in a buffer of `capacity` bytes. */
void jw_message_begin(jw_message *message, char *text, size_t capacity);

/* Append text. */
void jw_message_text(jw_message *message, const char *text);

/* Append a number in decimal digits. */
void jw_message_number(jw_message *message, uint64_t number);

/* Append a number in eight hexadecimal digits. */
void jw_message_bits(jw_message *message, uint32_t bits);

#endif
