/* Files on the storage that is measured or paged to. */
#ifndef JW_LINUX_FILE_H
#define JW_LINUX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JW_DIRECT_ALIGNMENT 4096 /* of memory, which every file system accepts for O_DIRECT */

/* The alignment of memory that a file's O_DIRECT transfers need, as the kernel states it (Linux 6.1);
 * else JW_DIRECT_ALIGNMENT. */
size_t jw_direct_alignment(int file);

/* Open another descriptor of an open file, with O_DIRECT if *is_direct. If the file system refuses
 * O_DIRECT (tmpfs), *is_direct becomes false. Returns -1 with errno set on failure. */
int jw_open_direct(int file, int flags, bool *is_direct);

/* Fill a file with random data from `begin` to `end`, and sync it. False with errno set on failure. */
bool jw_fill_file(int file, uint64_t begin, uint64_t end);

#endif
