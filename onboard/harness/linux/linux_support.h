/* What the parts of the Linux program share. */
#ifndef JW_LINUX_SUPPORT_H
#define JW_LINUX_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JW_EXIT_PLAN = 2,    /* the plan, or the command line, is wrong */
    JW_EXIT_MEMORY = 3,  /* the arena does not fit into this board */
    JW_EXIT_METER = 4,   /* a file of the meter cannot be read */
    JW_EXIT_STORAGE = 5, /* the scratch file cannot be made, read or written */
    JW_EXIT_RESULTS = 6, /* the records cannot be written */
    JW_EXIT_STEP = 7,    /* a step of a replay went wrong, or what it keeps in storage */
};

/* Says one sentence on standard error and exits with `code`. */
_Noreturn void jw_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Where sysfs is mounted: "/sys", or the tree that stands in for it. */
void jw_set_sysfs(const char *root);

/* What one read brings of a file of procfs or sysfs, "" if it cannot be read; its length is
 * returned. This and what follows allocates nothing: it works where memory is limited. */
size_t jw_read_text(char *text, size_t size, const char *path);

/* The first line of a file, without what is not printable; "" if it cannot be read. */
void jw_read_line(char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As jw_read_line, for a path below sysfs. */
void jw_read_sysfs(char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Binds this thread to the last processor that it may use (the first ones serve interrupts) and
 * returns its number. */
int jw_pin_processor(void);

/* Binds this thread to one processor. Returns false if that is refused: the scheduler then
 * chooses. */
bool jw_run_on(int processor);

/* Another one that this process may use, or the same where there is only one. Call it before
 * jw_pin_processor. */
int jw_spare_processor(void);

/* What holds the processor back. `bits` are Raspberry Pi's (documentation of `vcgencmd
 * get_throttled`: 0 to 3 now, 16 to 19 since boot); `cooling` is the sum of the states of all
 * cooling devices that slow processors down. Each is -1 where the board tells nothing. */
typedef struct {
    long bits;
    long cooling;
} jw_throttling;

jw_throttling jw_read_throttling(void);

/* Time that a hypervisor gave to others, since boot, over all processors. */
uint64_t jw_steal_ms(void);

#endif
