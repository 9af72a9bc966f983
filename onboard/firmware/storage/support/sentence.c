#include "sentence.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

static char buffer[192];
static size_t length;

static void add(char character) {
    if (length + 1 < sizeof buffer) {
        buffer[length++] = character;
    }
}

static void add_number(uint32_t value, uint32_t base, size_t least_digits) {
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value || count < least_digits);
    while (count) {
        add(digits[--count]);
    }
}

const char *jw_sentence(const char *format, ...) {
    va_list values;
    va_start(values, format);
    length = 0;
    for (; *format; format++) {
        if (*format != '%') {
            add(*format);
            continue;
        }
        format++;
        if (*format == 's') {
            for (const char *text = va_arg(values, const char *); *text; text++) {
                add(*text);
            }
        } else {
            add_number(va_arg(values, uint32_t), *format == 'x' ? 16 : 10, *format == 'x' ? 2 : 1);
        }
    }
    va_end(values);
    buffer[length] = '\0';
    return buffer;
}
