#include "message.h"

void jw_message_begin(jw_message *message, char *text, size_t capacity) {
    *message = (jw_message){text, capacity, 0};
    *text = '\0';
}

void jw_message_text(jw_message *message, const char *text) {
    while (*text && message->length + 1 < message->capacity) {
        message->text[message->length++] = *text++;
    }
    message->text[message->length] = '\0';
}

void jw_message_number(jw_message *message, uint64_t number) {
    char digits[21];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    jw_message_text(message, at);
}

void jw_message_bits(jw_message *message, uint32_t bits) {
    char digits[9];
    for (int place = 0; place < 8; place++) {
        digits[place] = "0123456789abcdef"[bits >> (28 - 4 * place) & 15];
    }
    digits[8] = '\0';
    jw_message_text(message, digits);
}
