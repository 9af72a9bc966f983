/* A plugin of QEMU's code translator: counts the instructions that an emulated board executes, and
 * logs the count whenever it reaches one of a few places in its program. It uses no clock, so that
 * it can check whatever measures time.
 *
 *     -plugin file=emulator-counter.so,log=PATH,from=ADDRESS,to=ADDRESS,at=NAME:ADDRESS,at=...
 *
 * Each line of the log is NAME ALL OWN: instructions since the start, of the whole board and
 * between the addresses `from` and `to`; the one at NAME's address is not counted yet.
 *
 * Only for boards with one processor. Debian's packages of QEMU have no header of this interface:
 * the part of version 1 that is used is declared here (QEMU's documentation, "QEMU TCG Plugins").
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the interface ---------------------------------------------------------------------------- */

typedef uint64_t qemu_plugin_id_t;
struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum { INLINE_ADD_U64 = 0, CALLBACK_USES_NO_REGISTERS = 0 };

typedef void translated_block(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void executed_instruction(unsigned processor, void *context);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_block *callback);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, int operation,
                                                void *counter, uint64_t added);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            executed_instruction *callback, int flags,
                                            void *context);

#define EXPORTED __attribute__((visibility("default")))
EXPORTED int qemu_plugin_version = 1;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int count,
                                 char **arguments);

/* --- the counter ------------------------------------------------------------------------------ */

#define MOST_PLACES 8

typedef struct {
    char name[32];
    uint64_t address;
} place;

static place places[MOST_PLACES];
static size_t place_count;
static uint64_t from, to = UINT64_MAX;
static int log_file = -1;
static uint64_t all, own;

static void note(unsigned processor, void *context) {
    const place *reached = context;
    char line[96];
    (void)processor;
    const int length =
        snprintf(line, sizeof line, "%s %" PRIu64 " %" PRIu64 "\n", reached->name, all, own);
    if (write(log_file, line, (size_t)length) != length) {
        perror("emulator-counter: log");
        abort();
    }
}

static void count(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    const size_t instructions = qemu_plugin_tb_n_insns(block);
    (void)id;
    for (size_t i = 0; i < instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        const uint64_t address = qemu_plugin_insn_vaddr(instruction);
        for (size_t j = 0; j < place_count; j++) {
            if (places[j].address == address) {
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, note,
                                                       CALLBACK_USES_NO_REGISTERS, &places[j]);
            }
        }
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &all, 1);
        if (address >= from && address < to) {
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &own, 1);
        }
    }
}

static bool take_place(const char *text) {
    const size_t length = strcspn(text, ":");
    if (place_count == MOST_PLACES || length >= sizeof places->name || text[length] != ':') {
        return false;
    }
    place *taken = &places[place_count++];
    memcpy(taken->name, text, length);
    taken->address = strtoull(text + length + 1, NULL, 0);
    return true;
}

static bool take(const char *argument) {
    if (strncmp(argument, "log=", 4) == 0) {
        log_file = open(argument + 4, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        return log_file >= 0;
    }
    if (strncmp(argument, "from=", 5) == 0) {
        from = strtoull(argument + 5, NULL, 0);
        return true;
    }
    if (strncmp(argument, "to=", 3) == 0) {
        to = strtoull(argument + 3, NULL, 0);
        return true;
    }
    return strncmp(argument, "at=", 3) == 0 && take_place(argument + 3);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argument_count,
                        char **arguments) {
    (void)info;
    for (int i = 0; i < argument_count; i++) {
        if (!take(arguments[i])) {
            fprintf(stderr, "emulator-counter: %s cannot be used\n", arguments[i]);
            return -1;
        }
    }
    if (log_file < 0) {
        fputs("emulator-counter: log=PATH is missing\n", stderr);
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, count);
    return 0;
}
