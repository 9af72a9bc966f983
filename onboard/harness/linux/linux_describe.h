/* Describes the board. */
#ifndef JW_LINUX_DESCRIBE_H
#define JW_LINUX_DESCRIBE_H

/* Print `key=value` lines on standard output, without the facts that the system does not report.
 * `storage` is a directory on the medium to page to, or NULL. */
void jw_describe(int processor, const char *storage);

#endif
