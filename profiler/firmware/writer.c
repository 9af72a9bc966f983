#include "writer.h"

void jw_writer_begin(jw_writer *writer, char *text, size_t capacity) {
    *writer = (jw_writer){text, 0, capacity};
    text[0] = '\0';
}

static void write_character(jw_writer *writer, char character) {
    if (writer->length + 1 < writer->capacity) {
        writer->text[writer->length++] = character;
        writer->text[writer->length] = '\0';
    }
}

void jw_write_text(jw_writer *writer, const char *text) {
    while (*text) {
        write_character(writer, *text++);
    }
}

void jw_write_number(jw_writer *writer, uint64_t number) {
    char digits[20];
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count) {
        write_character(writer, digits[--count]);
    }
}

void jw_write_hex(jw_writer *writer, uint32_t number) {
    for (int shift = 28; shift >= 0; shift -= 4) {
        write_character(writer, "0123456789abcdef"[number >> shift & 15]);
    }
}

static void write_key(jw_writer *writer, char separator, const char *key) {
    if (writer->length) {
        write_character(writer, separator);
    }
    jw_write_text(writer, key);
    write_character(writer, '=');
}

void jw_write_pair(jw_writer *writer, char separator, const char *key, const char *value) {
    write_key(writer, separator, key);
    jw_write_text(writer, value);
}

void jw_write_count(jw_writer *writer, char separator, const char *key, uint64_t value) {
    write_key(writer, separator, key);
    jw_write_number(writer, value);
}
