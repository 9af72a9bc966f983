#define _GNU_SOURCE
#include "linux_source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "linux_i2c.h"
#include "linux_support.h"

typedef enum { FROM_FILE, FROM_REGISTER, FROM_PMIC } source_kind;

struct jw_source {
    source_kind kind;
    int descriptor;
    uint8_t chip_register;
    char command[256];
    pid_t shell; /* that runs the command for each line it reads; 0 if there is none */
    int asking;
    FILE *answer;
    char buffer[4096];
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

/* Start a shell that runs the command for every line, on the processors of this thread. During a
 * replay, memory is limited, and no process could be started. */
static bool start_shell(jw_source *source) {
    char script[512];
    int asking[2], answering[2];
    snprintf(script, sizeof script,
             "while read -r _; do %s pmic_read_adc 2>/dev/null || echo failed; echo end; done",
             source->command);
    char *const words[] = {"sh", "-c", script, NULL};
    if (pipe2(asking, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(answering, O_CLOEXEC) != 0) {
        close(asking[0]);
        close(asking[1]);
        return false;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, asking[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, answering[1], STDOUT_FILENO);
    const bool begun = posix_spawnp(&source->shell, "sh", &actions, NULL, words, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(asking[0]);
    close(answering[1]);
    source->answer = begun ? fdopen(answering[0], "r") : NULL;
    if (!source->answer) {
        close(asking[1]);
        close(answering[0]);
        return false;
    }
    setvbuf(source->answer, source->buffer, _IOFBF, sizeof source->buffer);
    source->asking = asking[1];
    signal(SIGPIPE, SIG_IGN); /* where the shell was killed */
    return true;
}

static void end_shell(jw_source *source) {
    if (source->answer) {
        close(source->asking);
        fclose(source->answer);
        source->answer = NULL;
    }
    if (source->shell) {
        waitpid(source->shell, NULL, 0);
        source->shell = 0;
    }
}

static bool read_pmic(jw_source *source, int64_t *value) {
    char line[256];
    rail rails[MOST_RAILS];
    int count = 0;
    bool ended = false, failed = false, whole = false;
    double watts = 0.0;
    if (!source->answer && !start_shell(source)) {
        return false;
    }
    if (write(source->asking, "\n", 1) != 1) {
        return false;
    }
    while (!ended && fgets(line, sizeof line, source->answer)) {
        ended = strcmp(line, "end\n") == 0;
        failed |= strcmp(line, "failed\n") == 0;
        add_line(rails, &count, line);
    }
    for (int i = 0; i < count; i++) {
        if (rails[i].seen == 3u) {
            watts += rails[i].volts * rails[i].amperes;
            whole = true;
        }
    }
    *value = (int64_t)(watts * 1e6 + 0.5);
    return whole && ended && !failed;
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
    end_shell(source); /* the thread that samples starts its own, on its processor */
    return source;
}

bool jw_source_read(jw_source *source, int64_t *value) {
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
        return read_pmic(source, value);
    }
    return false;
}

void jw_source_close(jw_source *source) {
    if (source->descriptor >= 0) {
        close(source->descriptor);
    }
    end_shell(source);
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
