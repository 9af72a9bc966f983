/* Decodes an SD card's registers and checksums: SD Specifications, Part 1, Physical Layer
 * Simplified Specification (section numbers are those of version 9). */
#ifndef JW_SD_REGISTERS_H
#define JW_SD_REGISTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JW_SD_REGISTER_BYTES 16
#define JW_SD_IDENTITY_BYTES 48

/* CRC of the bytes of a command (4.5): x^7 + x^3 + 1. */
uint8_t jw_sd_crc7(const uint8_t *bytes, size_t count);

/* CRC of a block of data (4.5), a byte further: x^16 + x^12 + x^5 + 1. */
uint16_t jw_sd_crc16(uint16_t crc, uint8_t byte);

/* Capacity from the CSD (5.3); 0 for a CSD structure that cards on SPI do not have. */
uint64_t jw_sd_capacity_bytes(const uint8_t csd[JW_SD_REGISTER_BYTES]);

/* Whether one of the CSD's two bits forbids all writing. */
bool jw_sd_is_write_protected(const uint8_t csd[JW_SD_REGISTER_BYTES]);

/* Identity from the CID (5.2), such as `sd-03-SD-SU08G-8.0-1a2b3c4d-2019-08`: manufacturer, OEM,
 * product, revision, serial number, month. Characters that a line cannot carry become `_`. */
void jw_sd_identity(char text[JW_SD_IDENTITY_BYTES], const uint8_t cid[JW_SD_REGISTER_BYTES]);

#endif
