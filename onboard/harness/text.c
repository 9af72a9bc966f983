#include "text.h"

#include <stddef.h>
#include <string.h>

void jw_text_fail(jw_text *text, const char *key, const char *error) {
    if (!text->error) {
        text->key = key;
        text->error = error;
    }
}

static char *cut_at_space(char *start) {
    char *space = strchr(start, ' ');
    if (!space) {
        return start + strlen(start);
    }
    *space = '\0';
    return space + 1;
}

const char *jw_text_begin(jw_text *text, char *line) {
    *text = (jw_text){line, "", NULL};
    text->rest = cut_at_space(line);
    return line;
}

static bool skip_key(jw_text *text, const char *key) {
    const size_t length = strlen(key);
    if (text->error) {
        return false;
    }
    if (strncmp(text->rest, key, length) != 0 || text->rest[length] != '=') {
        jw_text_fail(text, key, "is expected next on the line");
        return false;
    }
    text->rest += length + 1;
    return true;
}

char *jw_text_value(jw_text *text, const char *key) {
    if (!skip_key(text, key)) {
        return text->rest + strlen(text->rest);
    }
    char *value = text->rest;
    text->rest = cut_at_space(value);
    return value;
}

char *jw_text_remainder(jw_text *text, const char *key) {
    char *value = skip_key(text, key) ? text->rest : text->rest + strlen(text->rest);
    text->rest += strlen(text->rest);
    return value;
}

uint64_t jw_text_number(jw_text *text, const char *key, uint64_t least, uint64_t most) {
    uint64_t number = 0;
    const char *value = jw_text_value(text, key);
    if (text->error) {
        return 0;
    }
    if (!jw_parse_number(value, most, &number) || number < least) {
        jw_text_fail(text, key, "is not a whole number in the allowed range");
        return 0;
    }
    return number;
}

bool jw_text_end(jw_text *text) {
    if (!text->error && *text->rest) {
        jw_text_fail(text, text->rest, "is not expected on the line");
    }
    return !text->error;
}

char *jw_text_item(char **list, char separator) {
    char *item = *list;
    if (!*item) {
        return NULL;
    }
    char *end = strchr(item, separator);
    if (end) {
        *end = '\0';
        *list = end + 1;
    } else {
        *list = item + strlen(item);
    }
    return item;
}

bool jw_parse_number(const char *digits, uint64_t most, uint64_t *value) {
    uint64_t number = 0;
    if (!*digits) {
        return false;
    }
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9') {
            return false;
        }
        const uint64_t digit = (uint64_t)(*digits - '0');
        if (number > (most - digit) / 10 || digit > most) {
            return false;
        }
        number = number * 10 + digit;
    }
    *value = number;
    return true;
}

bool jw_parse_int32(const char *digits, int32_t *value) {
    uint64_t magnitude;
    const bool negative = *digits == '-';
    if (!jw_parse_number(digits + negative, INT32_MAX, &magnitude)) {
        return false;
    }
    *value = negative ? -(int32_t)magnitude : (int32_t)magnitude;
    return true;
}

bool jw_parse_float_bits(const char *digits, float *value) {
    uint32_t bits = 0;
    if (strlen(digits) != 8) {
        return false;
    }
    for (; *digits; digits++) {
        const char *place = strchr("0123456789abcdef", *digits);
        if (!place) {
            return false;
        }
        bits = bits << 4 | (uint32_t)(place - "0123456789abcdef");
    }
    memcpy(value, &bits, sizeof bits);
    return true;
}
