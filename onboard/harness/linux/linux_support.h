/* Shared by the parts of the Linux program: exit codes, files, processors, throttling. */
#ifndef JW_LINUX_SUPPORT_H
#define JW_LINUX_SUPPORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JW_EXIT_PLAN = 2,    /* the plan, or the command line, is wrong */
    JW_EXIT_MEMORY = 3,  /* the arena does not fit into this board */
    JW_EXIT_METER = 4,   /* a file of the meter cannot be read */
    JW_EXIT_STORAGE = 5, /* the scratch cannot be created, read or written */
    JW_EXIT_RESULTS = 6, /* the records cannot be written */
    JW_EXIT_STEP = 7,    /* a step of a replay failed, or its storage */
};

/* Print one sentence on standard error and exit with `code`. */
_Noreturn void jw_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Set the root of sysfs, "/sys" by default; tests set a substitute. */
void jw_set_sysfs(const char *root);

/* Read a file of procfs or sysfs with a single read, and return its length; "" if it cannot be
 * read. This and the functions below allocate nothing, so that they work where memory is
 * limited. */
size_t jw_read_text(char *text, size_t size, const char *path);

/* Read the first line of a file without unprintable characters; "" if it cannot be read. */
void jw_read_line(char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like jw_read_line, for a path below sysfs. */
void jw_read_sysfs(char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bind this thread to the last processor that it may use (the first ones serve interrupts), and
 * return its number. */
int jw_pin_processor(void);

/* Bind this thread to one processor. Returns false if the system refuses; the scheduler then
 * chooses the processor. */
bool jw_run_on(int processor);

/* From now on, jw_running_ns counts the processor time of `helper`, too, a thread that the calling
 * one has started: both run on one processor, unless the system refused to bind the caller to it. */
void jw_count_running(pthread_t helper);

/* No longer count the processor time of a helper. Call it before the helper ends. */
void jw_count_running_alone(void);

/* Number of another processor that this process may use, or of the same if there is only one. Call
 * it before jw_pin_processor. */
int jw_spare_processor(void);

/* Throttling of the processor. `bits` are Raspberry Pi's (documentation of `vcgencmd
 * get_throttled`: 0 to 3 now, 16 to 19 since boot); `cooling` is the sum of the states of all
 * cooling devices that slow processors down. Each is -1 if the board does not report it. */
typedef struct {
    long bits;
    long cooling;
} jw_throttling;

/* Read the current throttling. */
jw_throttling jw_read_throttling(void);

/* Milliseconds since boot, over all processors, that a hypervisor gave to other guests. */
uint64_t jw_steal_ms(void);

#endif
