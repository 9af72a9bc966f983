/* Macronix's MX25R6435F on the QSPI peripheral of Nordic's nRF52840, as on the nRF52840 DK:
 * nRF52840 Product Specification, "QSPI"; Macronix data sheet MX25R6435F.
 *
 * The clock is 8 MHz, the limit of the flash on four lines in the low-power mode after its start.
 *
 * Ran only against a stand-in for the peripheral's registers: no emulator has the peripheral, and
 * no chip was available.
 */
#include "platform.h"
#include "storage.h"
#include "support/registers.h"
#include "support/sentence.h"
#include "support/stretch.h"

#define QSPI 0x40029000u
#define TASKS_ACTIVATE (QSPI + 0x000)
#define TASKS_READSTART (QSPI + 0x004)
#define TASKS_WRITESTART (QSPI + 0x008)
#define TASKS_ERASESTART (QSPI + 0x00c)
#define EVENTS_READY (QSPI + 0x100)
#define ENABLE (QSPI + 0x500)
#define READ_SRC (QSPI + 0x504)
#define READ_DST (QSPI + 0x508)
#define READ_CNT (QSPI + 0x50c)
#define WRITE_DST (QSPI + 0x510)
#define WRITE_SRC (QSPI + 0x514)
#define WRITE_CNT (QSPI + 0x518)
#define ERASE_PTR (QSPI + 0x51c)
#define ERASE_LEN (QSPI + 0x520) /* 0: 4 KiB */
#define PSEL_SCK (QSPI + 0x524)
#define PSEL_CSN (QSPI + 0x528)
#define PSEL_IO0 (QSPI + 0x530)
#define PSEL_IO1 (QSPI + 0x534)
#define PSEL_IO2 (QSPI + 0x538)
#define PSEL_IO3 (QSPI + 0x53c)
#define IFCONFIG0 (QSPI + 0x544)
#define IFCONFIG1 (QSPI + 0x600)
#define CINSTRCONF (QSPI + 0x634)
#define CINSTRDAT0 (QSPI + 0x638)

/* The kit's pins, all of port 0 (nRF52840 DK Hardware user guide, "External memory"). */
enum { PIN_SCK = 19, PIN_CSN = 17, PIN_IO0 = 20, PIN_IO1 = 21, PIN_IO2 = 22, PIN_IO3 = 23 };

#define READOC_READ4IO (UINT32_C(4) << 0)
#define WRITEOC_PP4IO (UINT32_C(3) << 3)
#define SCKDELAY_62_NS 1u                 /* between two selections */
#define SCKFREQ_8_MHZ (UINT32_C(3) << 28) /* 32 MHz / (3 + 1) */
#define INSTRUCTION_LENGTH(bytes) ((uint32_t)(bytes) << 8)
#define INSTRUCTION_IO2_IO3_HIGH (UINT32_C(3) << 12) /* no hold, no write protection */
#define INSTRUCTION_WREN (UINT32_C(1) << 15)

/* Instructions and status bits of the flash. */
enum { WRSR = 0x01, RDSR = 0x05, RDSCUR = 0x2b, RDID = 0x9f, RDP = 0xab };
enum { SR_WIP = 0x01, SR_QE = 0x40, SCUR_P_FAIL = 0x20, SCUR_E_FAIL = 0x40 };
#define IDENTITY 0x1728c2u /* manufacturer first, in the lowest byte */
enum { PAGE_BYTES = 256, SECTOR_BYTES = 4096, CAPACITY_BYTES = 8 << 20 };

#define MS UINT64_C(1000000)
#define READY_NS (100 * MS)     /* 256 KiB, all of the chip's RAM, take 66 ms */
#define PROGRAM_NS (10 * MS)    /* tPP in low-power mode, of a page */
#define STATUS_NS (30 * MS)     /* tW */
#define ERASE_NS (240 * MS)     /* tSE */
#define WAKE_NS UINT64_C(45000) /* tRES1, tRES2 */

const char jw_storage_driver[] = "mx25r6435f";

static jw_storage_facts flash;
static uint32_t stretch_begin;

/* --- the peripheral ----------------------------------------------------------------------- */

static const char *wait_for_event(void) {
    const uint64_t deadline_ns = jw_clock_ns() + READY_NS;
    while (!jw_register(EVENTS_READY)) {
        if (jw_clock_ns() > deadline_ns) {
            return "the QSPI peripheral is not ready in time";
        }
    }
    return NULL;
}

static const char *start(uint32_t task) {
    jw_set_register(EVENTS_READY, 0);
    jw_set_register(task, 1);
    return wait_for_event();
}

/* Send one instruction on one line, with `bytes` bytes of `data` after the opcode, which are
 * replaced by the bytes received. */
static const char *instruct(uint8_t opcode, uint32_t bytes, uint32_t flags, uint32_t *data) {
    jw_set_register(EVENTS_READY, 0);
    jw_set_register(CINSTRDAT0, bytes ? *data : 0);
    jw_set_register(CINSTRCONF,
                    opcode | INSTRUCTION_LENGTH(1 + bytes) | INSTRUCTION_IO2_IO3_HIGH | flags);
    const char *error = wait_for_event();
    if (bytes && !error) {
        *data = jw_register(CINSTRDAT0);
    }
    return error;
}

/* --- the flash ---------------------------------------------------------------------------- */

static const char *wait_while_writing(uint32_t address, uint64_t limit_ns) {
    const uint64_t deadline_ns = jw_clock_ns() + limit_ns;
    for (;;) {
        uint32_t status = 0;
        const char *error = instruct(RDSR, 1, 0, &status);
        if (error || !(status & SR_WIP)) {
            return error;
        }
        if (jw_clock_ns() > deadline_ns) {
            return jw_sentence("the flash is busy with 0x%x for more than %u ms", address,
                               (uint32_t)(limit_ns / MS));
        }
    }
}

/* Check whether the flash reports a failure of the last program or erase. */
static const char *check_success(uint32_t address, uint32_t failure, const char *what) {
    uint32_t security = 0;
    const char *error = instruct(RDSCUR, 1, 0, &security);
    if (error || !(security & failure)) {
        return error;
    }
    return jw_sentence("block at 0x%x fails to %s: the flash's security register has 0x%x", address,
                       what, security & 0xff);
}

/* Run a task that changes the block at `address`, and wait until it is done. */
static const char *carry_out(uint32_t task, uint32_t address, uint64_t limit_ns, uint32_t failure,
                             const char *what) {
    const char *error = start(task);
    if (!error) {
        error = wait_while_writing(address, limit_ns);
    }
    return error ? error : check_success(address, failure, what);
}

static const char *read_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    jw_set_register(READ_SRC, stretch_begin + (uint32_t)offset);
    jw_set_register(READ_DST, (uint32_t)(uintptr_t)memory);
    jw_set_register(READ_CNT, (uint32_t)bytes);
    return start(TASKS_READSTART);
}

static const char *write_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    const char *error = NULL;
    for (uint32_t done = 0; done < bytes && !error; done += PAGE_BYTES) {
        const uint32_t address = stretch_begin + (uint32_t)offset + done;
        jw_set_register(WRITE_DST, address);
        jw_set_register(WRITE_SRC, (uint32_t)(uintptr_t)memory + done);
        jw_set_register(WRITE_CNT, PAGE_BYTES);
        error = carry_out(TASKS_WRITESTART, address, PROGRAM_NS, SCUR_P_FAIL, "program");
    }
    return error;
}

static const char *erase_flash(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    (void)medium;
    (void)memory;
    const char *error = NULL;
    for (uint32_t done = 0; done < bytes && !error; done += SECTOR_BYTES) {
        const uint32_t address = stretch_begin + (uint32_t)offset + done;
        jw_set_register(ERASE_PTR, address);
        jw_set_register(ERASE_LEN, 0);
        error = carry_out(TASKS_ERASESTART, address, ERASE_NS, SCUR_E_FAIL, "erase");
    }
    return error;
}

/* --- start -------------------------------------------------------------------------------- */

static const char *start_peripheral(void) {
    static const struct {
        uint32_t address;
        uint32_t value;
    } settings[] = {
        {PSEL_SCK, PIN_SCK},
        {PSEL_CSN, PIN_CSN},
        {PSEL_IO0, PIN_IO0},
        {PSEL_IO1, PIN_IO1},
        {PSEL_IO2, PIN_IO2},
        {PSEL_IO3, PIN_IO3},
        {IFCONFIG0, READOC_READ4IO | WRITEOC_PP4IO}, /* addresses of 24 bits, pages of 256 bytes */
        {IFCONFIG1, SCKFREQ_8_MHZ | SCKDELAY_62_NS},
        {ENABLE, 1},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        jw_set_register(settings[i].address, settings[i].value);
    }
    return start(TASKS_ACTIVATE);
}

/* Enable four data lines instead of two with hold and write protection; the setting is
 * permanent. */
static const char *enable_quad(void) {
    uint32_t status = 0;
    const char *error = instruct(RDSR, 1, 0, &status);
    if (error || status & SR_QE) {
        return error;
    }
    status = (status & 0xff) | SR_QE;
    error = instruct(WRSR, 1, INSTRUCTION_WREN, &status);
    return error ? error : wait_while_writing(0, STATUS_NS);
}

const char *jw_storage_init(jw_storage_facts *facts) {
    uint32_t identity = 0;
    flash = (jw_storage_facts){.card = "mx25r6435f",
                               .page_bytes = PAGE_BYTES,
                               .erase_block_bytes = SECTOR_BYTES,
                               .capacity_bytes = CAPACITY_BYTES};
    const char *error = start_peripheral();
    if (!error) {
        error = instruct(RDP, 0, 0, NULL); /* an earlier program may have put it to sleep */
    }
    jw_sleep_until(jw_clock_ns() + WAKE_NS);
    if (!error) {
        error = instruct(RDID, 3, 0, &identity);
    }
    if (!error && (identity & 0xffffff) != IDENTITY) {
        error = jw_sentence("no MX25R6435F answers on QSPI: its identity reads 0x%x",
                            identity & 0xffffff);
    }
    if (!error) {
        error = enable_quad();
    }
    *facts = flash;
    return error;
}

const char *jw_storage_open(jw_medium *medium, uint64_t offset, uint64_t bytes) {
    const char *error = jw_stretch_open(medium, &flash, offset, bytes);
    if (!error) {
        stretch_begin = (uint32_t)offset;
        medium->transfer[JW_READ] = read_flash;
        medium->transfer[JW_WRITE] = write_flash;
        medium->transfer[JW_ERASE] = erase_flash;
    }
    return error;
}
