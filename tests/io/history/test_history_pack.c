/* What a history packs, `rubato history check` unpacks to the same bits, whatever keys and values
 * there are. Damaged and cut files are refused, and never end the program. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <rubato/mix.h>

#include "apps/rubato/history/history_file.h"
#include "io/history/history.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { MOST_KEYS = 300, MOST_VALUES = 16 * MOST_KEYS };

static char *folder, *path;
static History *history;
static GArray *said; /* of Said */

/* A record as it was given. Keys and rows are owned. */
typedef struct {
    HistoryKind kind;
    uint64_t clock, n_adds;
    size_t n;
    uint64_t *keys;
    uint8_t *rows;
    size_t rows_bytes;
} Said;

static void clear_said(void *data)
{
    Said *const record = data;

    g_free(record->keys);
    g_free(record->rows);
}

static void set_up(void)
{
    folder = g_dir_make_tmp("history-XXXXXX", NULL);
    path = g_strdup_printf("%s/node-7.history", folder);
    history = history_open(folder, 7, 1, NULL);
    ck_assert_ptr_nonnull(history);
    said = g_array_new(FALSE, FALSE, sizeof(Said));
    g_array_set_clear_func(said, clear_said);
}

static void tear_down(void)
{
    g_array_unref(said);
    g_unlink(path);
    g_rmdir(folder);
    g_free(path);
    g_free(folder);
}

/* ---- keys and values ---- */

typedef struct {
    uint64_t first, least_step, most_step;
} KeyCase;

/* The steps to each side of what 1, 2 and 4 bytes hold; the last ones go down. */
static const KeyCase key_cases[] = {
    { 7, 0, 255 },
    { 7, 200, 256 },
    { 7, 0, 65535 },
    { UINT64_C(1) << 40, 60000, 65536 },
    { 7, 0, UINT32_MAX },
    { 7, 0, UINT64_C(1) << 32 },
    { 65000, UINT64_MAX - 200, UINT64_MAX },
    { UINT32_MAX, UINT64_MAX - 100000, UINT64_MAX - 70000 },
    { UINT64_MAX, UINT64_MAX - 5, UINT64_MAX - 5 },
};

static void fill_keys(const KeyCase *what, uint64_t *keys, size_t n)
{
    const uint64_t n_steps = what->most_step - what->least_step + 1;

    keys[0] = what->first;
    for (size_t i = 1; i < n; i++) {
        const uint64_t step = i == 1       ? what->most_step
                              : i + 1 == n ? what->least_step
                                           : what->least_step + rubato_mix64(i) % n_steps;
        keys[i] = keys[i - 1] + step;
    }
}

typedef struct {
    double first, range; /* whole numbers from the first on */
    double last;         /* put at the end; NAN: none */
} ValueCase;

static const ValueCase value_cases[] = {
    { 0, 0, NAN },
    { -100, 255, NAN },
    { -100, 256, NAN },
    { 4194000, 255, NAN },
    { -4194304, 65535, NAN },
    { 5, 65535, NAN },
    { 5, 65536, NAN },
    { -2147483648.0, 200, NAN },
    { 2147483647.0, 0, -2147483648.0 },
    { 0, 0, -0.0 },
    { 0, 9, -0.0 },
    { 3, 100, 0.5 },
    { 3, 100, INFINITY },
    { 3, 100, 1e30 },
    { 0.125, 0, NAN },
    { 0.125, 200, NAN },
    { INFINITY, 0, NAN },
};

static size_t put_value(RubatoDtype dtype, double value, uint8_t *to)
{
    const float f32 = (float)value;
    const int64_t i64 = fabs(value) < 9e18 ? (int64_t)value : 0;
    const int32_t i32 = (int32_t)(uint32_t)(uint64_t)i64;
    const void *const from = dtype == RUBATO_F32   ? (const void *)&f32
                             : dtype == RUBATO_F64 ? (const void *)&value
                             : dtype == RUBATO_I32 ? (const void *)&i32
                                                   : (const void *)&i64;
    const size_t n = rubato_dtype_size(dtype);

    memcpy(to, from, n);
    return n;
}

static void fill_values(const ValueCase *what, RubatoDtype dtype, uint8_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double more = i == n / 2 ? what->range : floor(what->range * (double)(i % 7) / 7);
        const bool is_last = i + 1 == n && !isnan(what->last);

        values += put_value(dtype, is_last ? what->last : what->first + more, values);
    }
}

/* ---- writing ---- */

static void note(HistoryStream *stream, const HistoryIdentity *identity, HistoryRecord record,
                 bool is_run)
{
    const RubatoKeys *const keys = record.keys;
    const size_t rows_bytes =
        record.rows == NULL ? 0 : keys->n * identity->width * rubato_dtype_size(identity->dtype);
    Said copy = { .kind = record.kind,
                  .clock = record.clock,
                  .n_adds = record.n_adds,
                  .n = keys == NULL ? 0 : keys->n,
                  .rows = g_memdup2(record.rows, rows_bytes),
                  .rows_bytes = rows_bytes };

    copy.keys = g_new(uint64_t, MAX(copy.n, 1));
    for (size_t i = 0; i < copy.n; i++)
        copy.keys[i] = is_run ? keys->first + i : keys->keys[i];
    history_note(stream, &record);
    g_array_append_val(said, copy);
}

/* A Get and an Add of the keys, a Clock, and an announcement. */
static void note_iteration(HistoryStream *stream, const HistoryIdentity *identity,
                           const RubatoKeys *keys, const uint8_t *rows)
{
    static uint64_t clock = UINT64_C(1) << 33, n_adds;
    HistoryRecord record = {
        .kind = HISTORY_GET, .clock = clock, .n_adds = n_adds, .keys = keys, .rows = rows
    };

    note(stream, identity, record, keys->keys == NULL);
    record.kind = HISTORY_ADD;
    record.n_adds = n_adds++;
    note(stream, identity, record, keys->keys == NULL);
    note(stream, identity,
         (HistoryRecord){ .kind = HISTORY_CLOCK, .clock = ++clock, .n_adds = n_adds }, false);
    record = (HistoryRecord){ .kind = HISTORY_ANNOUNCE, .clock = 3, .n_adds = 2, .keys = keys };
    if (clock % 3 == 0) /* else the next Get tells the Clock */
        note(stream, identity, record, keys->keys == NULL);
}

static void note_all(RubatoDtype dtype, uint32_t width)
{
    static const size_t sizes[] = { 1, 2, 3, 17, 100, MOST_KEYS };
    const HistoryIdentity identity = { .epoch = 1, .table = 2, .dtype = dtype, .width = width };
    HistoryStream *const stream = history_stream_new(history, &identity);
    uint64_t keys[MOST_KEYS];
    _Alignas(8) uint8_t rows[1 + 8 * MOST_VALUES];

    for (size_t s = 0; s < G_N_ELEMENTS(sizes); s++)
        for (size_t v = 0; v < G_N_ELEMENTS(value_cases); v++)
            for (size_t k = 0; k <= G_N_ELEMENTS(key_cases); k++) {
                const bool is_run = k == G_N_ELEMENTS(key_cases);
                const size_t n = sizes[s];

                if (!is_run)
                    fill_keys(&key_cases[k], keys, n);
                fill_values(&value_cases[v], dtype, rows + k % 2, n * width);
                note_iteration(stream, &identity,
                               &(RubatoKeys){ .first = 9, .keys = is_run ? NULL : keys, .n = n },
                               rows + k % 2);
            }
    history_stream_free(stream);
}

/* ---- reading ---- */

typedef struct {
    guint n;       /* records */
    bool compares; /* with what was said */
} Reading;

static void take_line(void *user, uint32_t node, const char *line)
{
    (void)user;
    (void)node;
    (void)line;
}

static void take_record(void *user, const RecordOwner *owner, const Record *record)
{
    Reading *const reading = user;
    uint64_t sum = 0;

    if (!reading->compares) { /* a sanitizer sees whether all is there */
        for (uint32_t i = 0; record->keys != NULL && i < record->n_keys; i++)
            sum += record_key(record, i);
        for (size_t i = 0; record->rows != NULL && i < record->n_keys * record_row_bytes(owner);
             i++)
            sum += record->rows[i];
        reading->n += sum == 1 ? 2 : 1;
        return;
    }
    ck_assert_uint_lt(reading->n, said->len);
    const Said *const as = &g_array_index(said, Said, reading->n++);
    ck_assert_uint_eq((unsigned)record->kind, (unsigned)as->kind);
    ck_assert_uint_eq(record->clock, as->clock);
    ck_assert_uint_eq(record->n_adds, as->n_adds);
    ck_assert_uint_eq(record->n_keys, as->n);
    for (uint32_t i = 0; i < record->n_keys; i++)
        ck_assert_uint_eq(record_key(record, i), as->keys[i]);
    ck_assert((record->rows == NULL) == (as->rows_bytes == 0));
    if (as->rows_bytes > 0)
        ck_assert_mem_eq(record->rows, as->rows, as->rows_bytes);
}

static bool read_file(Reading *reading, GError **error)
{
    const HistoryVisitor visitor = { take_line, take_record, reading };
    HistoryFile file = { .path = g_strdup(path) };
    const bool ok = history_file_open(&file, error) && history_file_read(&file, &visitor, error);

    history_file_clear(&file);
    return ok;
}

START_TEST(what_is_packed_is_unpacked_to_the_same_bits)
{
    static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };
    const RubatoDtype dtype = dtypes[_i / 2];
    Reading reading = { .compares = true };
    GError *error = NULL;

    note_all(dtype, _i % 2 == 0 ? 1 : 64 / (uint32_t)rubato_dtype_size(dtype));
    history_close(history);
    ck_assert_msg(read_file(&reading, &error), "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(reading.n, said->len);
}
END_TEST

/* Of 1000 iterations of 100 keys: the bytes of each. */
static void check_bytes(const ValueCase *values, uint64_t most)
{
    const HistoryIdentity identity = { .epoch = 1, .dtype = RUBATO_F32, .width = 1 };
    HistoryStream *const stream = history_stream_new(history, &identity);
    uint64_t keys[100];
    uint8_t rows[400];
    GStatBuf status;

    fill_keys(&key_cases[2], keys, 100);
    fill_values(values, RUBATO_F32, rows, 100);
    for (unsigned i = 0; i < 1000; i++) {
        HistoryRecord record = {
            .clock = i, .n_adds = i, .keys = &(RubatoKeys){ .keys = keys, .n = 100 }, .rows = rows
        };
        record.kind = HISTORY_GET;
        history_note(stream, &record);
        record.kind = HISTORY_ADD;
        history_note(stream, &record);
        history_note(stream,
                     &(HistoryRecord){ .kind = HISTORY_CLOCK, .clock = i + 1, .n_adds = i + 1 });
    }
    history_stream_free(stream);
    history_close(history);
    ck_assert_int_eq(g_stat(path, &status), 0);
    ck_assert_uint_le((uint64_t)status.st_size, 1000 * most);
}

START_TEST(an_iteration_takes_few_bytes)
{
    const struct {
        ValueCase values;
        uint64_t most;
    } cases[] = { { { 0.125, 0, NAN }, 36 },
                  { { 3, 255, NAN }, 235 },
                  { { 3, 256, NAN }, 440 },
                  { { 0.125, 200, NAN }, 830 } };

    check_bytes(&cases[_i].values, cases[_i].most);
}
END_TEST

/* Each byte behind the file's first ones is wrong in two ways; the file is cut at each place. */
START_TEST(damaged_files_are_refused)
{
    const HistoryIdentity identity = { .epoch = 1, .dtype = RUBATO_F32, .width = 2 };
    HistoryStream *const stream = history_stream_new(history, &identity);
    g_autofree char *bytes = NULL;
    uint64_t keys[20];
    uint8_t rows[160];
    unsigned n_refused = 0;
    gsize size;

    for (size_t k = 0; k < G_N_ELEMENTS(key_cases); k++) {
        fill_keys(&key_cases[k], keys, 20);
        fill_values(&value_cases[k], RUBATO_F32, rows, 40);
        note_iteration(stream, &identity, &(RubatoKeys){ .keys = keys, .n = 20 }, rows);
    }
    history_stream_free(stream);
    history_close(history);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    const int fd = open(path, O_WRONLY); /* is changed in place, which waits for no disk */
    ck_assert_int_ge(fd, 0);
    for (gsize at = 64; at < size; at++)
        for (unsigned way = 0; way < 2; way++) {
            g_autoptr(GError) error = NULL;
            const char wrong = (char)(way == 0 ? ~bytes[at] : bytes[at] ^ (1 << at % 8));

            ck_assert_int_eq(pwrite(fd, &wrong, 1, (off_t)at), 1);
            n_refused += !read_file(&(Reading){ 0 }, &error);
            ck_assert_int_eq(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
        }
    ck_assert_uint_gt(n_refused, 100); /* most of the others change a number */
    for (gsize n = size; n-- > 0;) {
        g_autoptr(GError) error = NULL;

        ck_assert_int_eq(ftruncate(fd, (off_t)n), 0);
        ck_assert(read_file(&(Reading){ 0 }, &error) == (n == 64));
        ck_assert((error == NULL) == (n == 64));
    }
    close(fd);
}
END_TEST

/* ---- earlier formats ---- */

static void expect(HistoryKind kind, const uint64_t *keys, const float *rows)
{
    const Said record = { .kind = kind,
                          .clock = 5,
                          .n_adds = 3,
                          .n = 2,
                          .keys = g_memdup2(keys, 2 * sizeof *keys),
                          .rows = g_memdup2(rows, 2 * sizeof *rows),
                          .rows_bytes = 2 * sizeof *rows };

    g_array_append_val(said, record);
}

/* A Get of two keys, and an Add of the same. */
START_TEST(a_file_of_an_earlier_format_is_read)
{
    const uint64_t keys[] = { 70, 9 };
    const float got[] = { 1.5F, -2 }, added[] = { 3, 0.25F };
    struct {
        char magic[8];
        uint32_t state, node, n_nodes, process, zero[10];
        uint32_t chunk[8];
        uint8_t get[8];
        uint64_t get_clock, get_adds, get_bytes, keys[2];
        float got[2];
        uint8_t add[8];
        uint64_t add_clock, add_adds, add_bytes;
        float added[2];
    } file = { .state = 1,
               .node = 7,
               .n_nodes = 1,
               .chunk = { 0x4b4e4843, sizeof file - 96, 0, 1, 0, 2, 0, 1 },
               .get = { HISTORY_GET, 0, 0, 0, 2 },
               .get_clock = 5,
               .get_adds = 3,
               .get_bytes = 24,
               .keys = { keys[0], keys[1] },
               .got = { got[0], got[1] },
               .add = { HISTORY_ADD, HISTORY_SAME_KEYS, 0, 0, 2 },
               .add_clock = 5,
               .add_adds = 3,
               .add_bytes = 8,
               .added = { added[0], added[1] } };
    Reading reading = { .compares = true };
    GError *error = NULL;

    history_close(history);
    memcpy(file.magic, "RBTHIST", 7);
    file.magic[7] = (char)_i;
    ck_assert(g_file_set_contents(path, (const char *)&file, sizeof file, NULL));
    expect(HISTORY_GET, keys, got);
    expect(HISTORY_ADD, keys, added);
    ck_assert_msg(read_file(&reading, &error), "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(reading.n, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history pack");
    TCase *tcase = tcase_create("pack");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, what_is_packed_is_unpacked_to_the_same_bits, 0, 8);
    tcase_add_loop_test(tcase, an_iteration_takes_few_bytes, 0, 4);
    tcase_add_test(tcase, damaged_files_are_refused);
    tcase_add_loop_test(tcase, a_file_of_an_earlier_format_is_read, '1', '5');
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
