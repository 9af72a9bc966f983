/* What the board says about itself. */
#ifndef JW_LINUX_DESCRIBE_H
#define JW_LINUX_DESCRIBE_H

/* Prints `key=value` lines on standard output; what the system does not tell is left out.
 * `storage` is a directory on the medium that pages go to, or NULL. */
void jw_describe(int processor, const char *storage);

#endif
