#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_mtd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mtd/mtd-user.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core.h"
#include "linux_support.h"
#include "text.h"

#define ERASED 0xff
#define MOST_BAD_SHARE 8 /* at most one of 8 blocks is bad; data sheets promise one of 50 */
#define MOST_BLOCKS 1048576

typedef struct {
    jw_medium medium; /* first: the transfers below get a pointer to it */
    const char *device, *name;
    int descriptor;
    uint32_t block_bytes, page_bytes;
    uint32_t half; /* number of blocks with data, and of blocks that are written */
    uint32_t good_count;
    uint32_t *good_blocks; /* numbers of the range's good blocks within the partition */
} flash;

/* --- blocks ----------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *device, const char *name, const char *why) {
    jw_fail(JW_EXIT_STORAGE, "storage: %s (%s): %s", device, name, why);
}

static _Noreturn void fail_block(const flash *f, const char *action, uint32_t block, int error) {
    jw_fail(JW_EXIT_STORAGE, "storage: worn block %" PRIu32 " of %s (%s): it cannot be %s: %s",
            block, f->device, f->name, action, strerror(error));
}

static bool is_bad(const flash *f, uint32_t block) {
    loff_t offset = (loff_t)block * f->block_bytes;
    const int answer = ioctl(f->descriptor, MEMGETBADBLOCK, &offset);
    if (answer < 0 && errno != EOPNOTSUPP) { /* NOR flash has no bad blocks */
        fail_block(f, "asked whether it is bad", block, errno);
    }
    return answer > 0;
}

static void erase_block(const flash *f, uint32_t block) {
    struct erase_info_user64 erase = {.start = (uint64_t)block * f->block_bytes,
                                      .length = f->block_bytes};
    if (ioctl(f->descriptor, MEMERASE64, &erase) != 0) {
        fail_block(f, "erased", block, errno);
    }
}

static void program(const flash *f, uint32_t block, uint32_t begin, void *memory, size_t bytes) {
    const off_t offset = (off_t)block * f->block_bytes + begin;
    const ssize_t written = pwrite(f->descriptor, memory, bytes, offset);
    if (written != (ssize_t)bytes) {
        fail_block(f, "programmed", block, written < 0 ? errno : EIO);
    }
}

static void read_block(const flash *f, uint32_t block, uint32_t begin, void *memory, size_t bytes) {
    const off_t offset = (off_t)block * f->block_bytes + begin;
    const ssize_t length = pread(f->descriptor, memory, bytes, offset);
    if (length != (ssize_t)bytes) {
        fail_block(f, "read", block, length < 0 ? errno : EIO);
    }
}

/* --- transfers -------------------------------------------------------------------------------- */

typedef void block_transfer(const flash *f, uint32_t block, uint32_t begin, void *memory,
                            size_t bytes);

/* Split a transfer at the ends of blocks, so that a failure belongs to one block. `blocks` are the
 * numbers of the blocks from offset 0 on. */
static void transfer(const flash *f, const uint32_t *blocks, uint64_t offset, void *memory,
                     size_t bytes, block_transfer *transfer_in_block) {
    for (unsigned char *at = memory; bytes;) {
        const uint32_t begin = (uint32_t)(offset % f->block_bytes);
        const size_t left = f->block_bytes - begin, part = bytes < left ? bytes : left;
        transfer_in_block(f, blocks[offset / f->block_bytes], begin, at, part);
        at += part;
        offset += part;
        bytes -= part;
    }
}

static const char *read_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const flash *f = (flash *)medium;
    transfer(f, f->good_blocks, offset, memory, bytes, read_block);
    return NULL;
}

static const char *write_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const flash *f = (flash *)medium;
    transfer(f, f->good_blocks + f->half, offset, memory, bytes, program);
    return NULL;
}

static const char *erase_blocks(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const flash *f = (flash *)medium;
    (void)memory;
    for (uint64_t done = 0; done < bytes; done += f->block_bytes) {
        erase_block(f, f->good_blocks[f->half + (offset + done) / f->block_bytes]);
    }
    return NULL;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Size of the partition. Checks that the device node belongs to the partition of this name. */
static uint64_t partition_bytes(const jw_mtd_stretch *stretch) {
    struct stat node;
    char said[256], number[32];
    uint64_t bytes;
    const char *slash = strrchr(stretch->device, '/');
    const char *entry = slash ? slash + 1 : stretch->device;
    if (stat(stretch->device, &node) != 0 || !S_ISCHR(node.st_mode)) {
        refuse(stretch->device, stretch->name, "is not a character device");
    }
    snprintf(number, sizeof number, "%u:%u", major(node.st_rdev), minor(node.st_rdev));
    jw_read_sysfs(said, sizeof said, "class/mtd/%s/dev", entry);
    if (strcmp(said, number) != 0) {
        refuse(stretch->device, stretch->name, "is not the device with this name in sysfs");
    }
    jw_read_sysfs(said, sizeof said, "class/mtd/%s/name", entry);
    if (strcmp(said, stretch->name) != 0) {
        jw_fail(JW_EXIT_STORAGE, "storage: %s is partition %s, not %s; nothing was written",
                stretch->device, said, stretch->name);
    }
    jw_read_sysfs(said, sizeof said, "class/mtd/%s/size", entry);
    if (!jw_parse_number(said, INT64_MAX, &bytes)) {
        refuse(stretch->device, stretch->name, "its size cannot be read from sysfs");
    }
    return bytes;
}

static void check_geometry(const jw_mtd_stretch *stretch, int descriptor, uint64_t bytes) {
    struct mtd_info_user info;
    if (ioctl(descriptor, MEMGETINFO, &info) != 0) {
        refuse(stretch->device, stretch->name, strerror(errno));
    }
    if (!(info.flags & MTD_WRITEABLE)) {
        refuse(stretch->device, stretch->name, "is write-protected");
    }
    if (stretch->erase_block_bytes != info.erasesize || stretch->page_bytes % info.writesize ||
        stretch->erase_block_bytes % stretch->page_bytes) {
        jw_fail(JW_EXIT_STORAGE,
                "storage: %s (%s) has pages of %" PRIu32 " bytes and erase blocks of %" PRIu32
                "; the plan says %" PRIu32 " and %" PRIu32,
                stretch->device, stretch->name, info.writesize, info.erasesize, stretch->page_bytes,
                stretch->erase_block_bytes);
    }
    if (stretch->offset % info.erasesize || stretch->bytes % info.erasesize || !stretch->bytes ||
        stretch->bytes > bytes || stretch->offset > bytes - stretch->bytes ||
        stretch->bytes / info.erasesize > MOST_BLOCKS) {
        refuse(stretch->device, stretch->name,
               "the range is not of whole blocks within the partition");
    }
}

static void find_good_blocks(flash *f, const jw_mtd_stretch *stretch) {
    const uint32_t first = (uint32_t)(stretch->offset / f->block_bytes);
    const uint32_t count = (uint32_t)(stretch->bytes / f->block_bytes);
    f->good_blocks = calloc(count, sizeof *f->good_blocks);
    if (!f->good_blocks) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a table of %" PRIu32 " blocks", count);
    }
    for (uint32_t block = first; block < first + count; block++) {
        if (!is_bad(f, block)) {
            f->good_blocks[f->good_count++] = block;
        }
    }
    if (f->good_count < count - count / MOST_BAD_SHARE || f->good_count < 2) {
        jw_fail(JW_EXIT_STORAGE,
                "storage: %" PRIu32 " of %" PRIu32 " blocks of %s (%s) from offset %" PRIu64
                " on are bad; choose another range",
                count - f->good_count, count, f->device, f->name, stretch->offset);
    }
    f->half = f->good_count / 2;
}

static bool has_erased_page(const flash *f, const unsigned char *content) {
    for (uint32_t begin = 0; begin < f->block_bytes; begin += f->page_bytes) {
        const unsigned char *page = content + begin;
        if (page[0] == ERASED && memcmp(page, page + 1, f->page_bytes - 1) == 0) {
            return true;
        }
    }
    return false;
}

static void fill_data(const flash *f) {
    const jw_fill noise = {JW_FILL_INDEX, 0.0f, INT32_MAX};
    unsigned char *content = malloc(f->block_bytes);
    if (!content) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a block of %" PRIu32 " bytes", f->block_bytes);
    }
    for (uint32_t i = 0; i < f->half; i++) {
        const uint32_t block = f->good_blocks[i];
        read_block(f, block, 0, content, f->block_bytes);
        if (has_erased_page(f, content)) {
            jw_fill_memory(content, f->block_bytes, &noise, block + 1);
            erase_block(f, block);
            program(f, block, 0, content, f->block_bytes);
        }
    }
    free(content);
}

jw_medium *jw_mtd_open(const jw_mtd_stretch *stretch) {
    flash *f = calloc(1, sizeof *f);
    if (!f) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a medium");
    }
    f->device = stretch->device;
    f->name = stretch->name;
    f->block_bytes = stretch->erase_block_bytes;
    f->page_bytes = stretch->page_bytes;
    const uint64_t bytes = partition_bytes(stretch);
    f->descriptor = open(stretch->device, O_RDWR | O_CLOEXEC);
    if (f->descriptor < 0) {
        refuse(stretch->device, stretch->name, strerror(errno));
    }
    check_geometry(stretch, f->descriptor, bytes);
    find_good_blocks(f, stretch);
    fill_data(f);
    f->medium = (jw_medium){
        .transfer = {[JW_READ] = read_pages, [JW_WRITE] = write_pages, [JW_ERASE] = erase_blocks},
        .page_bytes = f->page_bytes,
        .erase_block_bytes = f->block_bytes,
        .scratch_bytes = (uint64_t)f->half * f->block_bytes,
        .random = 1};
    return &f->medium;
}
