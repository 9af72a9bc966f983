#include "hello.h"

#include "board.h"
#include "clock.h"
#include "cpu.h"
#include "joulewright.h"
#include "pairs.h"
#include "sizes.h"
#include "start.h"
#include "storage.h"

static void write_fault(jw_message *answer) {
    if (!jw_last_fault.vector) {
        jw_write_pair(answer, '\n', "fault", "none");
        return;
    }
    jw_write_pair(answer, '\n', "fault", jw_last_fault.vector == 3 ? "hard fault" : "exception ");
    if (jw_last_fault.vector != 3) {
        jw_message_number(answer, jw_last_fault.vector);
    }
    jw_message_text(answer, " at pc 0x");
    jw_message_bits(answer, jw_last_fault.pc);
    jw_message_text(answer, " called from 0x");
    jw_message_bits(answer, jw_last_fault.lr);
    jw_message_text(answer, " with status 0x");
    jw_message_bits(answer, jw_last_fault.status);
}

void jw_hello(jw_message *answer) {
    char serial[BOARD_SERIAL_BYTES];
    board_serial(serial);
    jw_write_pair(answer, '\n', "protocol", "1");
    jw_write_pair(answer, '\n', "firmware", JW_FIRMWARE_SHA256);
    jw_write_pair(answer, '\n', "kernels", JW_KERNELS_SHA256);
    jw_write_pair(answer, '\n', "compiler", JW_COMPILER);
    jw_write_pair(answer, '\n', "board", JW_BOARD);
    jw_write_pair(answer, '\n', "cpuid", "");
    jw_message_bits(answer, SCB_CPUID);
    if (serial[0]) {
        jw_write_pair(answer, '\n', "serial", serial);
    }
    jw_write_count(answer, '\n', "clock_hz", board_clock_hz());
    jw_write_pair(answer, '\n', "counter", jw_clock_moves() ? board_counter_name() : "none");
    jw_write_count(answer, '\n', "ram_bytes", JW_RAM_BYTES);
    jw_write_count(answer, '\n', "flash_bytes", JW_FLASH_BYTES);
    jw_write_count(answer, '\n', "program_bytes", (uint64_t)(jw_program_end - jw_flash_begin));
    jw_write_count(answer, '\n', "arena_bytes", (uint64_t)(jw_arena_end - jw_arena_begin));
    jw_write_count(answer, '\n', "stack_bytes", (uint64_t)(jw_stack_end - jw_stack_begin) * 4);
    jw_write_count(answer, '\n', "frame_bytes", JW_FRAME_BYTES);
    jw_write_count(answer, '\n', "window", JW_WINDOW);
    jw_write_count(answer, '\n', "line_bytes", JW_LINE_BYTES);
    jw_write_pair(answer, '\n', "sync", board_sync_pin() ? board_sync_pin() : "none");
    jw_write_pair(answer, '\n', "matmul", jw_matmul_name);
    jw_write_count(answer, '\n', "kernel_count", jw_kernel_count);
    jw_write_pair(answer, '\n', "storage", jw_storage_driver);
    write_fault(answer);
}
