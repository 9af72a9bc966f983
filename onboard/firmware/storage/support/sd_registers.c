#include "sd_registers.h"

uint8_t jw_sd_crc7(const uint8_t *bytes, size_t count) {
    uint8_t crc = 0; /* in the upper seven bits */
    while (count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint8_t)(crc & 0x80 ? crc << 1 ^ 0x09 << 1 : crc << 1);
        }
    }
    return crc >> 1;
}

/* A byte at a time: since the polynomial has few terms, the eight steps fold into shifts. */
uint16_t jw_sd_crc16(uint16_t crc, uint8_t byte) {
    uint32_t mixed = crc >> 8 ^ byte;
    mixed ^= mixed >> 4;
    return (uint16_t)((uint32_t)crc << 8 ^ mixed << 12 ^ mixed << 5 ^ mixed);
}

/* Bits `high` to `low`, numbered as in the specification: the card sends 127 first. */
static uint32_t bits(const uint8_t *bytes, unsigned high, unsigned low) {
    uint32_t value = 0;
    for (unsigned bit = high + 1; bit-- > low;) {
        value = value << 1 | (bytes[15 - bit / 8] >> bit % 8 & 1);
    }
    return value;
}

uint64_t jw_sd_capacity_bytes(const uint8_t csd[JW_SD_REGISTER_BYTES]) {
    switch (bits(csd, 127, 126)) {
    case 0: { /* SDSC: C_SIZE, C_SIZE_MULT, READ_BL_LEN */
        const uint64_t units = bits(csd, 73, 62) + 1;
        return units << (bits(csd, 49, 47) + 2 + bits(csd, 83, 80));
    }
    case 1: /* SDHC, SDXC: C_SIZE in 512 KiB */
        return (uint64_t)(bits(csd, 69, 48) + 1) << 19;
    default: /* SDUC, which has no SPI mode, or unknown */
        return 0;
    }
}

bool jw_sd_is_write_protected(const uint8_t csd[JW_SD_REGISTER_BYTES]) {
    return bits(csd, 13, 12) != 0; /* PERM_WRITE_PROTECT, TMP_WRITE_PROTECT */
}

static char *add_characters(char *at, const uint8_t *bytes, size_t count) {
    while (count--) {
        const char character = (char)*bytes++;
        *at++ = character > ' ' && character <= '~' && character != '=' ? character : '_';
    }
    return at;
}

static char *add_number(char *at, uint32_t value, uint32_t base, unsigned digits) {
    for (unsigned digit = digits; digit--;) {
        at[digit] = "0123456789abcdef"[value % base];
        value /= base;
    }
    return at + digits;
}

void jw_sd_identity(char text[JW_SD_IDENTITY_BYTES], const uint8_t cid[JW_SD_REGISTER_BYTES]) {
    static const char medium[] = {'s', 'd', '-'};
    char *at = text;
    for (size_t i = 0; i < sizeof medium; i++) {
        *at++ = medium[i];
    }
    at = add_number(at, bits(cid, 127, 120), 16, 2);
    *at++ = '-';
    at = add_characters(at, cid + 1, 2);
    *at++ = '-';
    at = add_characters(at, cid + 3, 5);
    *at++ = '-';
    at = add_number(at, bits(cid, 63, 60), 10, 1);
    *at++ = '.';
    at = add_number(at, bits(cid, 59, 56), 10, 1);
    *at++ = '-';
    at = add_number(at, bits(cid, 55, 24), 16, 8);
    *at++ = '-';
    at = add_number(at, 2000 + bits(cid, 19, 12), 10, 4);
    *at++ = '-';
    at = add_number(at, bits(cid, 11, 8), 10, 2);
    *at = '\0';
}
