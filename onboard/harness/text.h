/* Bounded reading of one line of `word key=value key=value ...`, in place, keys in a fixed order.
 *
 * The first thing that is wrong is remembered and everything after it reads as zero, so a caller
 * checks once, at the end.
 */
#ifndef JW_TEXT_H
#define JW_TEXT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char *rest;
    const char *key;   /* that was asked for when `error` was found */
    const char *error; /* NULL while all is well */
} jw_text;

void jw_text_fail(jw_text *text, const char *key, const char *error);

/* The first word of the line; what follows is read by the calls below. */
const char *jw_text_begin(jw_text *text, char *line);

/* The value of the next token, which must have this key. "" after an error. */
char *jw_text_value(jw_text *text, const char *key);
uint64_t jw_text_number(jw_text *text, const char *key, uint64_t least, uint64_t most);

/* The value reaches to the end of the line and may contain spaces. */
char *jw_text_remainder(jw_text *text, const char *key);

/* Nothing may be left on the line. True if all was well. */
bool jw_text_end(jw_text *text);

/* Cuts the next item off a list with this separator; NULL at its end. */
char *jw_text_item(char **list, char separator);

/* Decimal digits alone. */
bool jw_parse_number(const char *digits, uint64_t most, uint64_t *value);

/* An optional minus sign and decimal digits. */
bool jw_parse_int32(const char *digits, int32_t *value);

/* Eight hexadecimal digits: the bits of a float. */
bool jw_parse_float_bits(const char *digits, float *value);

#endif
