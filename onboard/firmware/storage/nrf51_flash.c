/* On-chip flash of Nordic's nRF51, and of the nRF52 (nRF52840) whose non-volatile memory controller
 * is the same except for the size of a page, which is read from the chip: nRF51 Series Reference
 * Manual, chapter 6; nRF52840 Product Specification, "NVMC" and "FICR".
 *
 * The medium is the whole flash, from address 0 on. The processor stops while flash is
 * written or erased.
 *
 * Ran in QEMU's micro:bit (nRF51), whose flash wants no time and does not wear, and against a
 * stand-in for the controller that wears; never on a chip.
 */
#include <string.h>

#include "platform.h"
#include "storage.h"
#include "support/registers.h"
#include "support/sentence.h"
#include "support/stretch.h"

#define NVMC_READY 0x4001e400u
#define NVMC_CONFIG 0x4001e504u
#define NVMC_ERASEPAGE 0x4001e508u
#define FICR_CODEPAGESIZE 0x10000010u
#define FICR_CODESIZE 0x10000014u
#define FICR_DEVICEID 0x10000060u

enum { CONFIG_READ = 0, CONFIG_WRITE = 1, CONFIG_ERASE = 2 };

/* nRF52840: 85 ms a page, 41 µs a word; nRF51: 22 ms, 46 µs. */
#define ERASE_NS UINT64_C(500000000)
#define PROGRAM_NS UINT64_C(10000000)

const char jw_storage_driver[] = "nrf51-flash";

static jw_storage_facts flash;
static uint32_t stretch_address;

static bool is_ready(void) {
    return jw_register(NVMC_READY) & 1;
}

static const char *wait_until_ready(uint32_t address, uint64_t limit_ns) {
    if (is_ready()) {
        return NULL; /* the usual case, without the cost of reading the clock */
    }
    const uint64_t deadline_ns = jw_clock_ns() + limit_ns;
    while (!is_ready()) {
        if (jw_clock_ns() > deadline_ns) {
            return jw_sentence("the flash controller is not ready %u ms after a command for"
                               " 0x%x",
                               (uint32_t)(limit_ns / 1000000), address);
        }
    }
    return NULL;
}

static const char *read_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    memcpy(memory, jw_mapped(stretch_address + (uint32_t)offset), bytes);
    return NULL;
}

static const char *program(uint32_t address, const uint32_t *words, size_t count) {
    const char *error = NULL;
    for (size_t word = 0; word < count && !error; word++, address += sizeof *words) {
        jw_set_register(address, words[word]);
        error = wait_until_ready(address, PROGRAM_NS);
    }
    return error;
}

static const char *write_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    const uint32_t address = stretch_address + (uint32_t)offset;
    jw_set_register(NVMC_CONFIG, CONFIG_WRITE);
    const char *error = program(address, memory, bytes / sizeof(uint32_t));
    jw_set_register(NVMC_CONFIG, CONFIG_READ);
    return error ? error : jw_flash_compare(address, memory, bytes);
}

static const char *erase_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)memory;
    const uint32_t begin = stretch_address + (uint32_t)offset;
    const char *error = NULL;
    jw_set_register(NVMC_CONFIG, CONFIG_ERASE);
    for (size_t done = 0; done < bytes && !error; done += medium->erase_block_bytes) {
        const uint32_t page = begin + (uint32_t)done;
        jw_set_register(NVMC_ERASEPAGE, page);
        error = wait_until_ready(page, ERASE_NS);
    }
    jw_set_register(NVMC_CONFIG, CONFIG_READ);
    return error ? error : jw_flash_compare_erased(begin, bytes);
}

const char *jw_storage_init(jw_storage_facts *facts) {
    flash = (jw_storage_facts){.page_bytes = sizeof(uint32_t)};
    flash.erase_block_bytes = jw_register(FICR_CODEPAGESIZE);
    flash.capacity_bytes = (uint64_t)flash.erase_block_bytes * jw_register(FICR_CODESIZE);
    const uint32_t unique[] = {jw_register(FICR_DEVICEID + 4), jw_register(FICR_DEVICEID)};
    jw_flash_identity(&flash, "nrf-flash", unique, 2);
    *facts = flash;
    return NULL;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    const char *error = jw_stretch_open(medium, &flash, offset, bytes);
    if (!error) {
        error = jw_stretch_spares_program((uint32_t)offset);
    }
    if (error) {
        return error;
    }
    stretch_address = (uint32_t)offset;
    medium->transfer[JW_READ] = read_flash;
    medium->transfer[JW_WRITE] = write_flash;
    medium->transfer[JW_ERASE] = erase_flash;
    return NULL;
}
