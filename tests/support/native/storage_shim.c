/* A storage driver of the firmware in a shared object, on a computer: its bus, its chip's registers
 * and its clock are functions of a stand-in. support/registers.h is replaced by the declarations
 * that are expected below. */
#include <string.h>

#include "board.h"
#include "platform.h"
#include "storage.h"
#include "support/registers.h"

typedef struct {
    uint64_t (*clock_ns)(void);
    uint8_t (*exchange)(uint8_t byte);
    void (*select)(bool selected);
    uint32_t (*get)(uint32_t address);
    void (*set)(uint32_t address, uint32_t value);
    unsigned char *flash; /* memory-mapped from flash_address on */
    uint32_t flash_address;
} stand_in;

stand_in shim_stand_in;

static jw_medium medium;

const char *shim_open(uint64_t offset, uint64_t bytes) {
    return jw_storage_open(&medium, offset, bytes);
}

const char *shim_transfer(int method, uint64_t offset, void *memory, size_t bytes) {
    return medium.transfer[method](&medium, offset, memory, bytes);
}

uint64_t jw_clock_ns(void) {
    return shim_stand_in.clock_ns();
}

void jw_sleep_until(uint64_t clock_ns) {
    while (jw_clock_ns() < clock_ns) {
    }
}

void board_spi_init(void) {
}

void board_spi_fast(bool fast) {
    (void)fast;
}

uint8_t board_spi_exchange(uint8_t byte) {
    return shim_stand_in.exchange(byte);
}

void board_spi_select(bool selected) {
    shim_stand_in.select(selected);
}

uint32_t jw_register(uint32_t address) {
    return shim_stand_in.get(address);
}

void jw_set_register(uint32_t address, uint32_t value) {
    shim_stand_in.set(address, value);
}

const void *jw_mapped(uint32_t address) {
    return shim_stand_in.flash + (address - shim_stand_in.flash_address);
}
