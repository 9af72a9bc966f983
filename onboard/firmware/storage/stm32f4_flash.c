/* On-chip flash of ST's STM32F405/407 (and the first bank of F42x/43x): reference manual RM0090,
 * chapter 3; times from data sheet DS8626, table "Flash memory programming".
 *
 * The medium is the whole flash, from 0x08000000 on. Its first 128 KiB are smaller sectors, which
 * hold programs; the range that may be overwritten consists of the 128 KiB sectors after them. The
 * processor stops while flash is written or erased. Words are written as a whole, which needs a
 * supply of at least 2.7 V.
 *
 * Ran only against a stand-in for the controller's registers: QEMU's STM32 boards have no
 * controller, and no chip was available.
 */
#include <string.h>

#include "platform.h"
#include "storage.h"
#include "support/registers.h"
#include "support/sentence.h"
#include "support/stretch.h"

#define FLASH_BEGIN 0x08000000u
#define SECTOR_BYTES (UINT32_C(128) << 10)
#define BANK_BYTES (UINT32_C(1) << 20)
#define FIRST_SECTOR 5u /* the first of 128 KiB; sectors 0 to 4 together have 128 KiB */

#define FLASH_ACR 0x40023c00u
#define FLASH_KEYR 0x40023c04u
#define FLASH_SR 0x40023c0cu
#define FLASH_CR 0x40023c10u
#define UNIQUE_ID 0x1fff7a10u
#define FLASH_SIZE 0x1fff7a20u /* in KiB, in the upper half of the word */

#define KEY_1 0x45670123u
#define KEY_2 0xcdef89abu

#define ACR_DCEN (UINT32_C(1) << 10)
#define ACR_DCRST (UINT32_C(1) << 12)
#define SR_BSY (UINT32_C(1) << 16)
#define SR_ERRORS 0xf2u /* PGSERR, PGPERR, PGAERR, WRPERR, OPERR: cleared by writing ones */
#define SR_WRPERR (UINT32_C(1) << 4)
#define CR_PG (UINT32_C(1) << 0)
#define CR_SER (UINT32_C(1) << 1)
#define CR_SNB(sector) ((uint32_t)(sector) << 3)
#define CR_PSIZE_32 (UINT32_C(2) << 8)
#define CR_STRT (UINT32_C(1) << 16)
#define CR_LOCK (UINT32_C(1) << 31)

/* At most 100 µs a word and 4 s a sector of 128 KiB, at any parallelism. */
#define PROGRAM_NS UINT64_C(10000000)
#define ERASE_NS UINT64_C(8000000000)

const char jw_storage_driver[] = "stm32f4-flash";

static jw_storage_facts flash;
static uint32_t stretch_address;

static bool is_busy(void) {
    return (jw_register(FLASH_SR) & SR_BSY) != 0;
}

static const char *finish(uint32_t address, uint64_t limit_ns, const char *what) {
    if (is_busy()) {
        const uint64_t deadline_ns = jw_clock_ns() + limit_ns;
        while (is_busy()) {
            if (jw_clock_ns() > deadline_ns) {
                return jw_sentence("the flash controller is busy with 0x%x for more than %u ms",
                                   address, (uint32_t)(limit_ns / 1000000));
            }
        }
    }
    const uint32_t errors = jw_register(FLASH_SR) & SR_ERRORS;
    if (!errors) {
        return NULL;
    }
    return jw_sentence("block at 0x%x fails to %s: %s, FLASH_SR has 0x%x", address, what,
                       errors & SR_WRPERR ? "it is write-protected" : "the controller refuses",
                       errors);
}

static void unlock(void) {
    if (jw_register(FLASH_CR) & CR_LOCK) {
        jw_set_register(FLASH_KEYR, KEY_1);
        jw_set_register(FLASH_KEYR, KEY_2);
    }
    jw_set_register(FLASH_SR, SR_ERRORS);
}

/* Empty the data cache, which is stale after an erase; this works only while it is off (3.5.2). */
static void flush_data_cache(void) {
    const uint32_t control = jw_register(FLASH_ACR);
    if (control & ACR_DCEN) {
        jw_set_register(FLASH_ACR, control & ~ACR_DCEN);
        jw_set_register(FLASH_ACR, (control & ~ACR_DCEN) | ACR_DCRST);
        jw_set_register(FLASH_ACR, control & ~ACR_DCEN);
        jw_set_register(FLASH_ACR, control);
    }
}

static const char *read_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    memcpy(memory, jw_mapped(stretch_address + (uint32_t)offset), bytes);
    return NULL;
}

static const char *write_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    const uint32_t begin = stretch_address + (uint32_t)offset;
    const uint32_t *words = memory;
    const char *error = NULL;
    unlock();
    jw_set_register(FLASH_CR, CR_PSIZE_32 | CR_PG);
    for (uint32_t done = 0; done < bytes && !error; done += sizeof *words) {
        jw_set_register(begin + done, words[done / sizeof *words]);
        error = finish(begin + done, PROGRAM_NS, "program");
    }
    jw_set_register(FLASH_CR, CR_LOCK);
    return error ? error : jw_flash_compare(begin, memory, bytes);
}

static const char *erase_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    (void)memory;
    const uint32_t begin = stretch_address + (uint32_t)offset;
    const char *error = NULL;
    unlock();
    for (uint32_t done = 0; done < bytes && !error; done += SECTOR_BYTES) {
        const uint32_t sector = FIRST_SECTOR - 1 + (begin + done - FLASH_BEGIN) / SECTOR_BYTES;
        jw_set_register(FLASH_CR, CR_PSIZE_32 | CR_SER | CR_SNB(sector));
        jw_set_register(FLASH_CR, CR_PSIZE_32 | CR_SER | CR_SNB(sector) | CR_STRT);
        error = finish(begin + done, ERASE_NS, "erase");
    }
    jw_set_register(FLASH_CR, CR_LOCK);
    flush_data_cache();
    return error ? error : jw_flash_compare_erased(begin, bytes);
}

const char *jw_storage_init(jw_storage_facts *facts) {
    const uint32_t bytes = (jw_register(FLASH_SIZE) >> 16) << 10;
    flash = (jw_storage_facts){.page_bytes = sizeof(uint32_t), .erase_block_bytes = SECTOR_BYTES};
    flash.capacity_bytes = bytes < BANK_BYTES ? bytes : BANK_BYTES;
    const uint32_t unique[] = {jw_register(UNIQUE_ID), jw_register(UNIQUE_ID + 4),
                               jw_register(UNIQUE_ID + 8)};
    jw_flash_identity(&flash, "stm32f4-flash", unique, 3);
    *facts = flash;
    return NULL;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    const char *error = jw_stretch_open(medium, &flash, offset, bytes);
    if (!error && offset < SECTOR_BYTES) {
        error = "scratch must be after the small sectors, which are the first 131072 bytes";
    }
    if (!error) {
        error = jw_stretch_spares_program(FLASH_BEGIN + (uint32_t)offset);
    }
    if (error) {
        return error;
    }
    stretch_address = FLASH_BEGIN + (uint32_t)offset;
    medium->transfer[JW_READ] = read_flash;
    medium->transfer[JW_WRITE] = write_flash;
    medium->transfer[JW_ERASE] = erase_flash;
    return NULL;
}
