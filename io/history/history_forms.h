/* Keys and values in fewer bytes, for the records of a history. docs/history.md tells the forms.
 *
 * Threads: any. */
#ifndef RUBATO_IO_HISTORY_HISTORY_FORMS_H
#define RUBATO_IO_HISTORY_HISTORY_FORMS_H

#include <rubato/request.h>

/* Both are part of the format. */
typedef enum {
    HISTORY_KEYS_PLAIN = 0, /* 8 bytes each */
    HISTORY_KEYS_4 = 1,     /* in 4 bytes each */
    HISTORY_KEYS_2 = 2,
    HISTORY_KEYS_STEPS_4 = 3, /* the first; of each other one what it has more than the one before,
                               * in 4 bytes */
    HISTORY_KEYS_STEPS_2 = 4,
    HISTORY_KEYS_STEPS_1 = 5,
} HistoryKeysForm;

typedef enum {
    HISTORY_ROWS_NONE = 0,
    HISTORY_ROWS_PLAIN = 1,
    HISTORY_ROWS_ALIKE = 2,   /* the value that all values are */
    HISTORY_ROWS_WHOLE_1 = 3, /* a whole number, as large as a value; of each value what it has more
                               * than that, in 1 byte */
    HISTORY_ROWS_WHOLE_2 = 4, /* in 2 bytes */
} HistoryRowsForm;

/* Returns the end of what it wrote to `at`: at most n × 8 bytes. n > 0. */
uint8_t *history_put_keys(const uint64_t *keys, size_t n, uint8_t *at, HistoryKeysForm *form);

/* Returns the end of what it wrote to `at`: at most n values. They may lie at any alignment. The
 * dtype is f32, f64, i32 or i64; n > 0. */
uint8_t *history_put_values(RubatoDtype dtype, const void *values, size_t n, uint8_t *at,
                            HistoryRowsForm *form);

#endif
