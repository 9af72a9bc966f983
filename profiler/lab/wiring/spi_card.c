/* A plugin for QEMU that wires an SD card to an SPI port of a machine that has no slot for one.
 *
 *   qemu-system-arm … -drive if=none,id=card,… -plugin spi_card.so,port=ADDRESS
 *
 * The port is a PL022 at ADDRESS. QEMU has the socket (ssi-sd) and the card, and its boards with a
 * slot put them together in this way; its command line cannot, since nothing there could wire a chip
 * select. Here none is wired: QEMU's PL022 has no output for it, and a socket whose select is left
 * open is always selected.
 *
 * QEMU exports these functions to its loadable modules, where it is built with them, as Debian's is.
 * Their signatures are those of QEMU 7.2 to 10.0.
 *
 * SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
 * (the second, because QEMU is under the GPL and this becomes a part of it when it is loaded)
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What QEMU's objects are inside does not matter here: all are passed by address. */
typedef struct Object Object;
typedef struct Error Error;
extern Error *error_fatal; /* as the place for an error, it ends QEMU with a sentence */
void error_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

Object *object_get_root(void);
int object_child_foreach_recursive(Object *, int (*visit)(Object *, void *), void *);
Object *object_dynamic_cast(Object *, const char *type);
void *object_class_by_name(const char *type);
uint64_t object_property_get_uint(Object *, const char *name, Error **);
Object *sysbus_mmio_get_region(Object *, int number);
Object *qdev_new(const char *type);
void *qdev_get_child_bus(Object *, const char *name);
bool qdev_realize_and_unref(Object *, void *bus, Error **);
bool qdev_prop_set_drive_err(Object *, const char *name, void *drive, Error **);
void qdev_prop_set_bit(Object *, const char *name, bool);
void *blk_by_name(const char *name);

typedef struct notifier notifier;
struct notifier {
    void (*notify)(notifier *, void *);
    notifier *next, **place;
};
void qemu_add_machine_init_done_notifier(notifier *);

/* Programs with this function refuse plugins of version 1; older programs know no other version. */
void qemu_plugin_scoreboard_new(void) __attribute__((weak));
int qemu_plugin_version;

__attribute__((constructor)) static void choose_version(void) {
    qemu_plugin_version = qemu_plugin_scoreboard_new ? 2 : 1;
}

static uint64_t port_address;

static __attribute__((noreturn)) void fail(const char *why) {
    error_report("the card cannot be wired: %s", why);
    exit(1);
}

static int is_port(Object *object, void *found) {
    if (!object_dynamic_cast(object, "pl022")) {
        return 0;
    }
    Object *registers = sysbus_mmio_get_region(object, 0);
    if (object_property_get_uint(registers, "addr", &error_fatal) != port_address) {
        return 0;
    }
    *(Object **)found = object;
    return 1;
}

static void wire(notifier *self, void *machine) {
    (void)self;
    (void)machine;
    Object *port = NULL;
    object_child_foreach_recursive(object_get_root(), is_port, &port);
    if (!port) {
        fail("this machine has no SPI port (PL022) at this address");
    }
    Object *socket = qdev_new("ssi-sd");
    qdev_realize_and_unref(socket, qdev_get_child_bus(port, "ssi"), &error_fatal);
    const bool has_own_type = object_class_by_name("sd-card-spi") != NULL; /* from QEMU 9.2 on */
    Object *card = qdev_new(has_own_type ? "sd-card-spi" : "sd-card");
    if (!has_own_type) {
        qdev_prop_set_bit(card, "spi", true);
    }
    qdev_prop_set_drive_err(card, "drive", blk_by_name("card"), &error_fatal);
    qdev_realize_and_unref(card, qdev_get_child_bus(socket, "sd-bus"), &error_fatal);
}

/* Devices can be added once the machine has all of its own. */
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    static notifier done = {wire, NULL, NULL};
    (void)id;
    (void)info;
    if (argc != 1 || strncmp(argv[0], "port=", 5)) {
        fail("it takes one argument, port=ADDRESS");
    }
    port_address = strtoull(argv[0] + 5, NULL, 0);
    qemu_add_machine_init_done_notifier(&done);
    return 0;
}
