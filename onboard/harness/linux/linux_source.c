#define _GNU_SOURCE
#include "linux_source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_i2c.h"
#include "linux_support.h"

typedef enum { FROM_FILE, FROM_REGISTER, FROM_PMIC } source_kind;

struct jw_source {
    source_kind kind;
    int descriptor;
    uint8_t chip_register;
    char command[256];
};

/* --- a file ----------------------------------------------------------------------------------- */

static bool read_file(int descriptor, int64_t *value) {
    char text[32];
    char *end;
    const ssize_t length = pread(descriptor, text, sizeof text - 1, 0);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && errno == 0;
}

/* --- Raspberry Pi 5's power management chip --------------------------------------------------- */

#define MOST_RAILS 32

typedef struct {
    char name[32];
    double volts, amperes;
    unsigned seen; /* 1: volts, 2: amperes */
} rail;

static rail *find_rail(rail *rails, int *count, const char *name, size_t length) {
    for (int i = 0; i < *count; i++) {
        if (strlen(rails[i].name) == length && memcmp(rails[i].name, name, length) == 0) {
            return &rails[i];
        }
    }
    if (*count == MOST_RAILS || length >= sizeof rails[0].name) {
        return NULL;
    }
    rail *added = &rails[(*count)++];
    *added = (rail){.seen = 0};
    memcpy(added->name, name, length);
    return added;
}

/* Lines like `   VDD_CORE_A current(7)=1.52000000A` and `   VDD_CORE_V volt(15)=0.75000000V`. */
static void add_line(rail *rails, int *count, const char *line) {
    line += strspn(line, " \t");
    const size_t length = strcspn(line, " \t");
    const char *equals = strchr(line, '=');
    if (!equals || length < 3 || line[length - 2] != '_') {
        return;
    }
    const char what = line[length - 1];
    char *end;
    const double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != what || (what != 'A' && what != 'V')) {
        return;
    }
    rail *of = find_rail(rails, count, line, length - 2);
    if (of && what == 'V') {
        of->volts = value;
        of->seen |= 1u;
    } else if (of) {
        of->amperes = value;
        of->seen |= 2u;
    }
}

static bool read_pmic(const char *command, int64_t *value) {
    char line[256];
    rail rails[MOST_RAILS];
    int count = 0;
    bool whole = false;
    double watts = 0.0;
    snprintf(line, sizeof line, "%s pmic_read_adc 2>/dev/null", command);
    FILE *answer = popen(line, "re");
    if (!answer) {
        return false;
    }
    while (fgets(line, sizeof line, answer)) {
        add_line(rails, &count, line);
    }
    if (pclose(answer) != 0) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (rails[i].seen == 3u) {
            watts += rails[i].volts * rails[i].amperes;
            whole = true;
        }
    }
    *value = (int64_t)(watts * 1e6 + 0.5);
    return whole;
}

/* --- sources ---------------------------------------------------------------------------------- */

static const char *open_kind(jw_source *source, jw_text *text) {
    const char *rest = text->rest;
    if (strncmp(rest, "file=", 5) == 0) {
        const char *path = jw_text_remainder(text, "file");
        source->kind = FROM_FILE;
        source->descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (source->descriptor < 0) {
            jw_fail(JW_EXIT_METER, "meter: %s: %s", path, strerror(errno));
        }
        return path;
    }
    if (strncmp(rest, "i2c=", 4) == 0) {
        const char *bus = jw_text_value(text, "i2c");
        const uint8_t address = (uint8_t)jw_text_number(text, "address", 8, 119);
        source->kind = FROM_REGISTER;
        source->chip_register = (uint8_t)jw_text_number(text, "register", 0, 255);
        source->descriptor = text->error ? -1 : jw_i2c_open(bus, address);
        return bus;
    }
    const char *command = jw_text_remainder(text, "pmic");
    source->kind = FROM_PMIC;
    source->descriptor = -1;
    for (const char *at = command; *at; at++) { /* a shell runs it */
        if (!isalnum((unsigned char)*at) && !strchr("/._-", *at)) {
            jw_text_fail(text, "pmic", "is not the name of a command");
        }
    }
    snprintf(source->command, sizeof source->command, "%s", command);
    return command;
}

jw_source *jw_source_open(jw_text *text) {
    static const char *const faults[] = {
        [FROM_FILE] = "does not contain a whole number",
        [FROM_REGISTER] = "the sensor's register cannot be read",
        [FROM_PMIC] = "`pmic_read_adc` reports no rails; it needs a Raspberry Pi 5",
    };
    int64_t value;
    jw_source *source = calloc(1, sizeof *source);
    if (!source) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a source of the meter");
    }
    const char *name = open_kind(source, text);
    if (!jw_text_end(text)) {
        jw_source_close(source);
        return NULL;
    }
    if (!jw_source_read(source, &value)) {
        jw_fail(JW_EXIT_METER, "meter: %s: %s", name, faults[source->kind]);
    }
    return source;
}

bool jw_source_read(const jw_source *source, int64_t *value) {
    switch (source->kind) {
    case FROM_FILE:
        return read_file(source->descriptor, value);
    case FROM_REGISTER: {
        uint16_t bits;
        const bool read = jw_i2c_read(source->descriptor, source->chip_register, &bits);
        *value = (int16_t)bits;
        return read;
    }
    case FROM_PMIC:
        return read_pmic(source->command, value);
    }
    return false;
}

void jw_source_close(jw_source *source) {
    if (source->descriptor >= 0) {
        close(source->descriptor);
    }
    free(source);
}

bool jw_write_register(jw_text *text) {
    const char *bus = jw_text_value(text, "i2c");
    const uint8_t address = (uint8_t)jw_text_number(text, "address", 8, 119);
    const uint8_t chip_register = (uint8_t)jw_text_number(text, "register", 0, 255);
    const uint16_t value = (uint16_t)jw_text_number(text, "value", 0, 65535);
    if (!jw_text_end(text)) {
        return false;
    }
    const int descriptor = jw_i2c_open(bus, address);
    if (!jw_i2c_write(descriptor, chip_register, value)) {
        jw_fail(JW_EXIT_METER, "meter: %s: the sensor at 0x%02x refuses its configuration: %s", bus,
                address, strerror(errno));
    }
    close(descriptor);
    return true;
}
