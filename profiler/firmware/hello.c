#include "hello.h"

#include "board.h"
#include "clock.h"
#include "cpu.h"
#include "joulewright.h"
#include "sizes.h"
#include "start.h"
#include "storage.h"

static void write_fault(jw_writer *writer) {
    if (!jw_last_fault.vector) {
        jw_write_pair(writer, '\n', "fault", "none");
        return;
    }
    jw_write_pair(writer, '\n', "fault", jw_last_fault.vector == 3 ? "hard fault" : "exception ");
    if (jw_last_fault.vector != 3) {
        jw_write_number(writer, jw_last_fault.vector);
    }
    jw_write_text(writer, " at pc 0x");
    jw_write_hex(writer, jw_last_fault.pc);
    jw_write_text(writer, " called from 0x");
    jw_write_hex(writer, jw_last_fault.lr);
    jw_write_text(writer, " with status 0x");
    jw_write_hex(writer, jw_last_fault.status);
}

void jw_hello(jw_writer *writer) {
    char serial[BOARD_SERIAL_BYTES];
    board_serial(serial);
    jw_write_pair(writer, '\n', "protocol", "1");
    jw_write_pair(writer, '\n', "firmware", JW_FIRMWARE_SHA256);
    jw_write_pair(writer, '\n', "kernels", JW_KERNELS_SHA256);
    jw_write_pair(writer, '\n', "compiler", JW_COMPILER);
    jw_write_pair(writer, '\n', "board", JW_BOARD);
    jw_write_pair(writer, '\n', "cpuid", "");
    jw_write_hex(writer, SCB_CPUID);
    if (serial[0]) {
        jw_write_pair(writer, '\n', "serial", serial);
    }
    jw_write_count(writer, '\n', "clock_hz", board_clock_hz());
    jw_write_pair(writer, '\n', "counter", jw_clock_moves() ? board_counter_name : "none");
    jw_write_count(writer, '\n', "ram_bytes", JW_RAM_BYTES);
    jw_write_count(writer, '\n', "flash_bytes", JW_FLASH_BYTES);
    jw_write_count(writer, '\n', "program_bytes", (uint64_t)(jw_program_end - jw_flash_begin));
    jw_write_count(writer, '\n', "arena_bytes", (uint64_t)(jw_arena_end - jw_arena_begin));
    jw_write_count(writer, '\n', "stack_bytes", (uint64_t)(jw_stack_end - jw_stack_begin) * 4);
    jw_write_count(writer, '\n', "frame_bytes", JW_FRAME_BYTES);
    jw_write_count(writer, '\n', "window", JW_WINDOW);
    jw_write_count(writer, '\n', "line_bytes", JW_LINE_BYTES);
    jw_write_pair(writer, '\n', "sync", board_sync_pin);
    jw_write_pair(writer, '\n', "matmul", jw_matmul_name);
    jw_write_count(writer, '\n', "kernel_count", jw_kernel_count);
    jw_write_pair(writer, '\n', "storage", jw_storage_driver);
    write_fault(writer);
}
