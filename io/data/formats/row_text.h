/* Words and numbers of a text of rows, and the faults found there.
 *
 * All of them may read up to ROW_TEXT_PADDING bytes behind the text. A line ends in a newline,
 * which stops every loop.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_FORMATS_ROW_TEXT_H
#define RUBATO_IO_DATA_FORMATS_ROW_TEXT_H

#include <string.h>

#include "io/data/formats/decimal.h"
#include "io/data/formats/row_parser.h"

/* The kinds of bytes that most formats know. */
static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

static inline const char *skip_blanks(const char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

/* Eight bytes, the first of them lowest. */
static inline uint64_t load_word(const char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return GUINT64_FROM_LE(word);
}

/* The digits that a word begins with, as numbers from 0 to 9, in bytes 0 .. n - 1; n is up to 8.
 * The other bytes are undefined. */
static inline unsigned leading_digits(uint64_t word, uint64_t *digits)
{
    *digits = word ^ UINT64_C(0x3030303030303030);

    /* The high bit of a byte that is no digit. A carry may spoil only bytes behind the first
     * such. */
    const uint64_t others =
        ((*digits + UINT64_C(0x7676767676767676)) | *digits) & UINT64_C(0x8080808080808080);
    return others == 0 ? 8 : (unsigned)__builtin_ctzll(others) / 8;
}

/* The number that n digits make, 1 <= n <= 8. It joins digits to pairs, pairs to fours, and fours
 * to eights: three multiplications instead of a loop whose length no processor can predict. */
static inline uint64_t number_of_digits(uint64_t digits, unsigned n)
{
    const uint64_t pair = UINT64_C(0x000000ff000000ff);
    uint64_t number = digits << (64 - 8 * n);

    number = number * 10 + (number >> 8);
    return ((number & pair) * (100 + (UINT64_C(1000000) << 32)) +
            ((number >> 16) & pair) * (1 + (UINT64_C(10000) << 32))) >>
           32;
}

/* Fills a fault in; returns false, so that a parser ends with it. */
bool row_fault(RowFault *fault, const char *at, const char *expected, ...) G_GNUC_PRINTF(3, 4);
bool row_fault_out_of_memory(RowFault *fault, const char *at);

/* The fault of a number that decimal_read_float has refused: too large, or not `expected`. */
bool row_fault_number(RowFault *fault, const char *at, DecimalStatus status, const char *expected);

/* A float, as decimal_read_float reads it; short ones without an exponent are read from a few
 * words. */
static inline DecimalStatus read_float(const char *text, const char **end, float *number)
{
    static const double power_of_ten[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7 };
    const bool negative = *text == '-';
    const char *at = text + (negative || *text == '+');
    uint64_t digits, mantissa;
    unsigned n = leading_digits(load_word(at), &digits), n_behind_point = 0;

    if (n - 1 > 6)
        return decimal_read_float(text, end, number);
    mantissa = number_of_digits(digits, n);
    at += n;
    if (*at == '.') {
        n_behind_point = leading_digits(load_word(++at), &digits);
        if (n_behind_point - 1 > 6)
            return decimal_read_float(text, end, number);
        mantissa = mantissa * (uint64_t)power_of_ten[n_behind_point] +
                   number_of_digits(digits, n_behind_point);
        at += n_behind_point;
    }
    if ((*at | 0x20) == 'e')
        return decimal_read_float(text, end, number);

    /* Of at most 14 digits: both are exact, so that the quotient is what decimal_read_float has. */
    const double value = (double)mantissa / power_of_ten[n_behind_point];
    *number = (float)(negative ? -value : value);
    *end = at;
    return DECIMAL_OK;
}

/* Ends a line at a carriage return or newline; *at is then behind it. */
static inline bool end_line(const char **at, RowFault *fault)
{
    const char *end = *at + (**at == '\r');

    if (*end != '\n')
        return row_fault(fault, end, "the end of the line%s",
                         end > *at ? " behind a carriage return" : "");
    *at = end + 1;
    return true;
}

#endif
