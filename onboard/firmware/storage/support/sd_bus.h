/* Sends commands and transfers blocks of an SD card in SPI mode: SD Specifications, Part 1,
 * Physical Layer Simplified Specification, chapter 7 (section numbers are those of version 9). */
#ifndef JW_SD_BUS_H
#define JW_SD_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JW_SD_BLOCK_BYTES = 512 };

#define JW_SD_MS UINT64_C(1000000)
#define JW_SD_BUSY_NS (500 * JW_SD_MS) /* longest write, of SDXC, 4.6.2.2 */

typedef enum {
    JW_SD_GO_IDLE_STATE = 0,
    JW_SD_SEND_IF_COND = 8,
    JW_SD_SEND_CSD = 9,
    JW_SD_SEND_CID = 10,
    JW_SD_STOP_TRANSMISSION = 12,
    JW_SD_SEND_STATUS = 13,
    JW_SD_SET_BLOCKLEN = 16,
    JW_SD_READ_SINGLE_BLOCK = 17,
    JW_SD_READ_MULTIPLE_BLOCK = 18,
    JW_SD_WRITE_BLOCK = 24,
    JW_SD_WRITE_MULTIPLE_BLOCK = 25,
    JW_SD_SEND_OP_COND = 41, /* after JW_SD_APP_CMD */
    JW_SD_APP_CMD = 55,
    JW_SD_READ_OCR = 58,
    JW_SD_CRC_ON_OFF = 59,
} jw_sd_command_number;

/* Values of R1, 7.3.2.1; JW_SD_R1_NONE means no answer. */
enum {
    JW_SD_R1_READY = 0x00,
    JW_SD_R1_IDLE = 0x01,
    JW_SD_R1_ILLEGAL = 0x04,
    JW_SD_R1_NONE = 0xff,
};

/* Tokens before and after data, 7.3.3.2. */
enum {
    JW_SD_TOKEN_START = 0xfe,
    JW_SD_TOKEN_START_MULTIPLE = 0xfc,
    JW_SD_TOKEN_STOP = 0xfd,
};

/* Send a command to a card that is already selected; returns R1. */
uint8_t jw_sd_send(jw_sd_command_number number, uint32_t argument);

/* Select the card again, wait until it is ready, and send a command; returns R1. The card stays
 * selected. */
uint8_t jw_sd_command(jw_sd_command_number number, uint32_t argument);

/* The same after APP_CMD. */
uint8_t jw_sd_application_command(jw_sd_command_number number, uint32_t argument);

/* Error message for an R1 other than the expected one. */
const char *jw_sd_refused(jw_sd_command_number number, uint8_t answer);

/* Receive a byte, or a word of four bytes. */
uint8_t jw_sd_receive(void);
uint32_t jw_sd_receive_word(void);

/* Wait until the card is ready; false if it is busy for longer than JW_SD_BUSY_NS. */
bool jw_sd_wait_until_ready(void);

void jw_sd_deselect(void);

/* Receive data after a command that reads. Returns NULL, or a sentence that says why it failed, in
 * which the data are called `what` and `number`. */
const char *jw_sd_receive_data(uint8_t *memory, size_t bytes, const char *what, uint32_t number);

/* Send a block after a command that writes, and wait until the card has programmed it. Returns
 * NULL, or a sentence that says why it failed. */
const char *jw_sd_send_data(uint8_t token, const uint8_t *memory, uint32_t block);

#endif
