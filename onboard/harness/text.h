/* Parses a line `word key=value key=value ...` in place; keys have a fixed order.
 *
 * The first error is kept, and all later values read as zero, so that callers check once, at the
 * end.
 */
#ifndef JW_TEXT_H
#define JW_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* A line being parsed. */
typedef struct {
    char *rest;
    const char *key;   /* the key at which `error` was found */
    const char *error; /* NULL without an error */
} jw_text;

/* Note an error at a key, unless there was one before. */
void jw_text_fail(jw_text *text, const char *key, const char *error);

/* Begin a line and return its first word; the calls below read the rest. */
const char *jw_text_begin(jw_text *text, char *line);

/* Value of the next token, which must have this key; "" after an error. */
char *jw_text_value(jw_text *text, const char *key);

/* The same as a whole number from `least` to `most`; 0 after an error. */
uint64_t jw_text_number(jw_text *text, const char *key, uint64_t least, uint64_t most);

/* Value of the last token, which extends to the end of the line and may contain spaces. */
char *jw_text_remainder(jw_text *text, const char *key);

/* Check that nothing is left on the line; true if there was no error. */
bool jw_text_end(jw_text *text);

/* Remove and return the first item of a list; NULL at its end. */
char *jw_text_item(char **list, char separator);

/* Parse decimal digits, without a sign. */
bool jw_parse_number(const char *digits, uint64_t most, uint64_t *value);

/* Parse decimal digits after an optional minus sign. */
bool jw_parse_int32(const char *digits, int32_t *value);

/* Parse eight hexadecimal digits, the bits of a float. */
bool jw_parse_float_bits(const char *digits, float *value);

#endif
