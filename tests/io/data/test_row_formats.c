/* The small formats (ratings, bags of words, text, IDX), and what holds for every format: rows are
 * the same wherever a file is cut into blocks. */
#include <string.h>
#include <zstd.h>

#include "io/data/formats/row_parser.h"
#include "io/data/formats/text_hash.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

static const RubatoDataSpec ratings = { .format = "ratings" };
static const RubatoDataSpec bag = { .format = "bag_of_words" };
static const RubatoDataSpec text = { .format = "text" };
static const RubatoDataSpec triples = { .format = "text", .words_per_row = 3 };
static const RubatoDataSpec idx = { .format = "idx" };

/* Two images of 2 × 2. */
static const char two_images[] = "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02"
                                 "\0\xff\0\x33"
                                 "\0\0\0\0";
#define TWO_IMAGES_BYTES (sizeof two_images - 1)

static RubatoKey word(const char *at)
{
    return text_hash(at, strlen(at), 0, 0);
}

/* ---- ratings ---- */

/* Texts that all hold that user 7 gave item 42 the rating 4.5, and nothing else. */
static const struct {
    char separator;
    const char *text;
} same_ratings[] = {
    { 0, "7 42 4.5\n" },
    { 0, "7 42 4.5" },
    { 0, "7\t42\t4.5\t978300760\n" },
    { 0, "7::42::4.5::978300760\r\n" },
    { 0, "7,42,4.5\n" },
    { 0, "\n  7 , 42 , +45e-1 , 0.5 \n\r\n" },
    { 0, "userId,movieId,rating,timestamp\n7,42,4.5,978300760\n" },
    { 0, "user item rating\r\n7 42 4.5\r\n" },
    { ';', "7;42;4.5\n" },
    { '\t', "7\t42\t4.5\n" },
};

START_TEST(ratings_may_be_parted_in_many_ways)
{
    for (size_t i = 0; i < G_N_ELEMENTS(same_ratings); i++) {
        const RubatoDataSpec spec = { .format = "ratings", .separator = same_ratings[i].separator };
        g_autoptr(RubatoRows) rows = load_good(&spec, same_ratings[i].text);

        ck_assert_msg(rows->n_rows == 1 && rows->n_entries == 2 && rows->label[0] == 4.5f &&
                          rows->key[0] == 2 * 7 && rows->key[1] == 2 * 42 + 1 &&
                          rows->field[0] == 0 && rows->field[1] == 1 && rows->value[0] == 1 &&
                          rows->value[1] == 1,
                      "other rows in \"%s\"", same_ratings[i].text);
    }
}
END_TEST

/* A user and an item of the same number have different keys, up to the largest number. */
START_TEST(users_and_items_have_keys_of_their_own)
{
    g_autoptr(RubatoRows) rows = load_good(&ratings, "5 5 1\n9223372036854775807 0 2\n"
                                                     "0 9223372036854775807 3\n");

    ck_assert_mem_eq(rows->key, ((RubatoKey[]){ 10, 11, UINT64_MAX - 1, 1, 0, UINT64_MAX }),
                     6 * sizeof(RubatoKey));
    ck_assert_uint_eq(rows->n_fields, 2);
}
END_TEST

/* Keys that an older version read, in which user 5 is item 5, are not those of a model now. */
START_TEST(ratings_of_an_older_versions_keys_are_refused)
{
    static const RubatoDataKeys older = { .format = "ratings", .label_column = RUBATO_NO_COLUMN },
                                now = { .format = "ratings",
                                        .label_column = RUBATO_NO_COLUMN,
                                        .fields_in_keys = 2 };
    RubatoDataSpec spec = { .format = "ratings", .keys = &older };
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(load_text(&spec, "1 2 3\n", 6, &error));
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH), "%s",
                  error->message);
    ck_assert_msg(strstr(error->message, "expected keys that different fields share") != NULL, "%s",
                  error->message);
    spec.keys = &now;
    g_autoptr(RubatoRows) rows = load_good(&spec, "1 2 3\n");
    ck_assert_uint_eq(rows->key[1], 5);
}
END_TEST

/* ---- bags of words ---- */

START_TEST(a_bag_of_words_is_a_row)
{
    g_autoptr(RubatoRows) rows =
        load_good(&bag, "9\n60\n5\n1 60 2\n1 3 1\n\n2 1 1\r\n5 7 1\n5 60 4");

    ck_assert_uint_eq(rows->n_rows, 3);
    ck_assert_mem_eq(rows->label, ((float[]){ 1, 2, 5 }), 3 * sizeof(float));
    ck_assert_mem_eq(rows->row_start, ((size_t[]){ 0, 2, 3, 5 }), 4 * sizeof(size_t));
    ck_assert_mem_eq(rows->key, ((RubatoKey[]){ 60, 3, 1, 7, 60 }), 5 * sizeof(RubatoKey));
    ck_assert_mem_eq(rows->value, ((float[]){ 2, 1, 1, 1, 4 }), 5 * sizeof(float));
    ck_assert_ptr_null(rows->field);
}
END_TEST

/* A faulty line takes its whole document with it, and no other. */
START_TEST(a_bag_with_a_bad_line_is_left_out_whole)
{
    static const char *const texts[] = {
        "3\n9\n5\n1 1 1\n2 1 1\n2 x 1\n2 3 1\n3 3 1\n", "3\n9\n5\n1 1 1\n2 x 1\n2 1 1\n3 3 1\n",
        "3\n9\n5\n1 1 1\n2 1 1\nx\n2 1 1\n3 3 1\n",     "3\n9\n5\n1 1 1\n2 1 1\n2 2\n3 3 1\n",
        "3\n9\n5\n1 1 1\n3 3 1\n2 1 1\n2 2 2\n",
    };
    RubatoDataSpec lenient = bag;

    lenient.max_bad_rows = 1;
    g_autoptr(RubatoRows) rows = load_good(&lenient, texts[_i]);
    ck_assert_uint_eq(rows->n_rows, 2);
    ck_assert_mem_eq(rows->label, ((float[]){ 1, 3 }), 2 * sizeof(float));
    ck_assert_mem_eq(rows->key, ((RubatoKey[]){ 1, 3 }), 2 * sizeof(RubatoKey));
}
END_TEST

/* ---- text ---- */

START_TEST(text_rows_end_with_their_line)
{
    g_autoptr(RubatoRows) rows = load_good(&text, "\n a rose\tis a\r\n\n  \nrose\v");
    const RubatoKey keys[] = { word("a"), word("rose"), word("is"), word("a"), word("rose") };

    ck_assert_uint_eq(rows->n_rows, 2);
    ck_assert_mem_eq(rows->row_start, ((size_t[]){ 0, 4, 5 }), 3 * sizeof(size_t));
    ck_assert_mem_eq(rows->key, keys, sizeof keys);
    ck_assert_mem_eq(rows->value, ((float[]){ 1, 1, 1, 1, 1 }), 5 * sizeof(float));
    ck_assert_mem_eq(rows->label, ((float[]){ 0, 0 }), 2 * sizeof(float));
}
END_TEST

START_TEST(text_rows_end_after_so_many_words)
{
    g_autoptr(RubatoRows) rows = load_good(&triples, "a b c d e f\ng h i j\nk\n");

    ck_assert_uint_eq(rows->n_rows, 5);
    ck_assert_mem_eq(rows->row_start, ((size_t[]){ 0, 3, 6, 9, 10, 11 }), 6 * sizeof(size_t));
}
END_TEST

/* One line of many blocks: every word is there, in order. */
START_TEST(text_of_one_line_is_cut_between_words)
{
    g_autoptr(GString) line = g_string_new(NULL);
    const uint32_t n_words = 60000;

    for (uint32_t i = 0; i < n_words; i++)
        g_string_append_printf(line, "w%u ", i);
    g_autoptr(RubatoRows) rows = load_good(&text, line->str);
    ck_assert_uint_eq(rows->n_entries, n_words);
    ck_assert_uint_ge(rows->n_rows, n_words / 1000);
    for (uint32_t i = 0; i < n_words; i++) {
        char expected[16];

        g_snprintf(expected, sizeof expected, "w%u", i);
        require_msg(rows->key[i] == word(expected), "word %u", i);
    }
}
END_TEST

/* ---- IDX ---- */

START_TEST(idx_rows_are_the_pixels_that_are_not_black)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-idx-XXXXXX", NULL);
    g_autofree char *labels = g_build_filename(dir, "labels", NULL);
    RubatoDataSpec spec = idx;
    g_autoptr(GError) error = NULL;

    spec.labels_path = _i == 0 ? NULL : labels;
    ck_assert(g_file_set_contents(labels, "\0\0\x08\x01\0\0\0\x02\x04\x01", 10, NULL));
    g_autoptr(RubatoRows) rows = load_text(&spec, two_images, TWO_IMAGES_BYTES, &error);
    remove_files(dir);
    ck_assert_msg(rows != NULL, "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(rows->n_rows, 2);
    ck_assert_mem_eq(rows->row_start, ((size_t[]){ 0, 2, 2 }), 3 * sizeof(size_t));
    ck_assert_mem_eq(rows->key, ((RubatoKey[]){ 1, 3 }), 2 * sizeof(RubatoKey));
    ck_assert_mem_eq(rows->value, ((float[]){ 1, 0.2f }), 2 * sizeof(float));
    ck_assert_mem_eq(rows->label, _i == 0 ? ((float[]){ 0, 0 }) : ((float[]){ 4, 1 }),
                     2 * sizeof(float));
}
END_TEST

START_TEST(idx_labels_must_fit)
{
    static const char *const messages[] = {
        "byte 4: expected 3 images, one for each label, found 2", "cannot be opened"
    };
    g_autofree char *dir = g_dir_make_tmp("rubato-idx-XXXXXX", NULL);
    g_autofree char *labels = g_build_filename(dir, "labels", NULL);
    RubatoDataSpec spec = idx;
    g_autoptr(GError) error = NULL;

    spec.labels_path = labels;
    if (_i == 0)
        ck_assert(g_file_set_contents(labels, "\0\0\x08\x01\0\0\0\x03\x04\x01\x02", 11, NULL));
    ck_assert_ptr_null(load_text(&spec, two_images, TWO_IMAGES_BYTES, &error));
    remove_files(dir);
    ck_assert_msg(strstr(error->message, messages[_i]) != NULL, "%s", error->message);
}
END_TEST

/* A packed file, whose size is unknown before its end. */
START_TEST(idx_is_refused_where_it_ends_too_early_or_late)
{
    g_autofree char *longer = g_malloc0(TWO_IMAGES_BYTES + 4);

    memcpy(longer, two_images, TWO_IMAGES_BYTES);
    check_refused(&idx, two_images, TWO_IMAGES_BYTES - 1,
                  "rows: byte 4: expected 8 bytes of images behind the header, found 7");
    check_refused(&idx, longer, TWO_IMAGES_BYTES + 4,
                  "rows: byte 4: expected 8 bytes of images behind the header, found 12");
    for (size_t size = TWO_IMAGES_BYTES - 1; size <= TWO_IMAGES_BYTES + 4; size += 5) {
        g_autofree char *packed = g_malloc(1024);
        const size_t packed_size = ZSTD_compress(packed, 1024, longer, size, 1);

        check_refused(
            &idx, packed, packed_size,
            size < TWO_IMAGES_BYTES
                ? "rows: byte 20: expected 4 bytes of an image, found 3; the file is trunc"
                : "rows: byte 24: expected the end of the file behind 2 images");
    }
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const RubatoDataSpec *spec;
    const char *text;
    const char *message;
} bad_rows[] = {
    { &ratings, "", "rows: expected a row" },
    { &ratings, "user item rating\n", "rows: expected a row" },
    { &ratings, "1 2 3\nx 2 3\n", "rows:2:1: expected a user, a number from 0, found \"x\"" },
    { &ratings, "user 2 rating\n", "rows:1:1: expected a user, a number from 0, found \"user\"" },
    { &ratings, "1 -2 3\n", "rows:1:3: expected an item, a number from 0, found \"-2\"" },
    { &ratings, "1 2\n", "rows:1:4: expected a rating, found the end of the line" },
    { &ratings, "1 2 \n", "rows:1:5: expected a rating, found the end of the line" },
    { &ratings, "1\n", "rows:1:2: expected an item, found the end of the line" },
    { &ratings, "1:2:3\n",
      "rows:1:2: expected a blank, a comma or :: and an item, found \":2:3\"" },
    { &ratings, "1 2 x\n", "rows:1:5: expected a finite number as rating, found \"x\"" },
    { &ratings, "1 2 1e99\n", "rows:1:5: expected a number within the range of a float" },
    { &ratings, "1 2 3 x\n", "rows:1:7: expected a number as time, found \"x\"" },
    { &ratings, "1 2 3 4 5\n",
      "rows:1:9: expected the end of the line behind rating and time, found \"5\"" },
    { &ratings, "9223372036854775808 2 3\n",
      "rows:1:1: expected a user up to 9223372036854775807, found" },
    { &ratings, "1 18446744073709551616 3\n",
      "rows:1:3: expected an item up to 9223372036854775807, found" },
    { &(RubatoDataSpec){ .format = "ratings", .separator = ';' }, "1,2,3\n",
      "rows:1:2: expected \";\" and an item, found \",2,3\"" },

    { &bag, "", "rows:1:1: expected the number of documents, found the end of the file" },
    { &bag, "3\nx\n5\n", "rows:2:1: expected the number of words, found \"x\"" },
    { &bag, "3 1\n9\n5\n", "rows:1:3: expected the end of the line, found \"1\"" },
    { &bag, "3\n0\n5\n",
      "rows:2:1: expected the number of words, from 1 to 18446744073709551615, found \"0\"" },
    { &bag, "3\n9\n5\n", "rows: expected a row" },
    { &bag, "3\n9\n5\n1 1 1\n4 1 1\n",
      "rows:5:1: expected the number of a document, from 1 to 3, found \"4\"" },
    { &bag, "3\n9\n5\n1 1 1\n1 10 1\n",
      "rows:5:3: expected the number of a word, from 1 to 9, found \"10\"" },
    { &bag, "3\n9\n5\n1 1\n", "rows:4:4: expected a count, found the end of the line" },
    { &bag, "3\n9\n5\n1 1 0\n", "rows:4:5: expected a count above 0, found \"0\"" },
    { &bag, "3\n9\n5\n1 1 1e99\n", "rows:4:5: expected a number within the range of a float" },
    { &bag, "3\n9\n5\n1 1 1 1\n",
      "rows:4:7: expected the end of the line behind document, word and count, found \"1\"" },
    { &bag, "3\n9\n5\n2 1 1\n1 1 1\n",
      "rows:5:1: expected a document from 2 on (they must ascend), found \"1\"" },
    { &bag, "3\n9\n5\n\rx\n", "rows:4:2: expected the end of the line behind a carriage return" },

    { &text, " \n", "rows: expected a row" },
    { &idx, "", "rows: byte 0: expected 4 more bytes of the header, found the end of the file" },
    { &idx, "1 1:1\n",
      "rows: byte 0: expected an IDX file of images, which begins with 00 00 08 03" },
};

START_TEST(formats_refuse_with_line_and_column)
{
    for (size_t i = 0; i < G_N_ELEMENTS(bad_rows); i++)
        check_refused(bad_rows[i].spec, bad_rows[i].text, strlen(bad_rows[i].text),
                      bad_rows[i].message);
}
END_TEST

/* ---- what holds for every format ---- */

static const struct {
    RubatoDataSpec spec;
    const char *text;
    size_t size; /* 0: up to its end */
} samples[] = {
    { .spec = { .format = "libsvm" },
      .text = "1 1:1 22:22\n\n-1 # x\n0 7:0.5 123456:1 1234567:-1e3\r\n1 9:1\n" },
    { .spec = { .format = "libffm" },
      .text = "1 1:1:1 2:22:22\n\n-1 # x\n0 7:123456:0.5\n1 2:9:1\n" },
    { .spec = { .format = "csv" }, .text = "y,a,b\n1,2,3\n0,\"4\",\n\n1,12345.5,-7\r\n0,1,1\n" },
    { .spec = { .format = "ratings" }, .text = "user,item,rating\n1,2,3\n10,20,4.5,99\n3::4::5\n" },
    { .spec = { .format = "bag_of_words" },
      .text = "9\n99\n9\n1 1 1\n1 2 1\n1 3 1\n2 1 5\n3 77 1\n\n3 78 1\n4 1 1\n7 8 9\n7 9 9\n" },
    { .spec = { .format = "text", .words_per_row = 3 },
      .text = "a rose is a rose is a rose\nis a\n\nrose\n" },
    { .spec = { .format = "idx" }, .text = two_images, .size = TWO_IMAGES_BYTES },
};

/* A parser of a sample, and the text where it can be cut. */
typedef struct {
    RowParser *parser;
    RowFile *file;
    char *bytes;
    size_t size;
} Sample;

static Sample sample_open(int i)
{
    Sample sample = { .size = samples[i].size != 0 ? samples[i].size : strlen(samples[i].text) };
    const RowParserOps *ops = row_parser_ops(&samples[i].spec, "", NULL);
    RowFault fault;

    ck_assert_ptr_nonnull(ops);
    ck_assert_str_eq(ops->name, samples[i].spec.format);
    sample.bytes = g_malloc0(sample.size + ROW_TEXT_PADDING);
    memcpy(sample.bytes, samples[i].text, sample.size);
    sample.parser = row_parser_create(ops, &samples[i].spec, NULL);
    sample.file = row_parser_begin_file(
        sample.parser, &(RowText){ .bytes = sample.bytes, .size = sample.size }, &fault);
    ck_assert_ptr_nonnull(sample.file);
    return sample;
}

static void sample_close(Sample *sample)
{
    row_parser_end_file(sample->parser, sample->file);
    row_parser_destroy(sample->parser);
    g_free(sample->bytes);
}

/* Parses a part of the text from a copy of exactly its size, so that a read beyond its end is
 * found. */
static void parse_part(const Sample *sample, size_t from, size_t to, RowBlock *block)
{
    char *copy = g_malloc0(to - from + ROW_TEXT_PADDING);
    RowFault fault;

    memcpy(copy, sample->bytes + from, to - from);
    require_msg(sample->parser->ops->parse(
                    sample->parser, sample->file,
                    &(RowText){ .bytes = copy, .size = to - from, .offset = from }, block, &fault),
                "bytes %zu to %zu: expected %s", from, to, fault.expected);
    g_free(copy);
}

static size_t find_row(const Sample *sample, size_t window_from, size_t window_to, size_t from)
{
    char *copy = g_malloc0(window_to - window_from + ROW_TEXT_PADDING);
    size_t at;

    memcpy(copy, sample->bytes + window_from, window_to - window_from);
    at = row_parser_find_row(
        sample->parser, sample->file,
        &(RowText){ .bytes = copy, .size = window_to - window_from, .offset = window_from },
        from - window_from);
    g_free(copy);
    return at == ROW_NOT_FOUND ? at : window_from + at;
}

static void check_same(const RowBlock *whole, const RowBlock *parts, size_t at)
{
    require_msg(parts->n_rows == whole->n_rows && parts->n_entries == whole->n_entries,
                "cut at %zu: %zu rows, %zu entries", at, parts->n_rows, parts->n_entries);
    require_msg(
        memcmp(parts->row_start, whole->row_start,
               (whole->n_rows + 1) * sizeof *whole->row_start) == 0 &&
            memcmp(parts->label, whole->label, whole->n_rows * sizeof *whole->label) == 0 &&
            memcmp(parts->key, whole->key, whole->n_entries * sizeof *whole->key) == 0 &&
            memcmp(parts->value, whole->value, whole->n_entries * sizeof *whole->value) == 0 &&
            (!whole->has_fields ||
             memcmp(parts->field, whole->field, whole->n_entries * sizeof *whole->field) == 0),
        "cut at %zu: other rows", at);
}

START_TEST(rows_are_the_same_wherever_blocks_begin)
{
    Sample sample = sample_open(_i);
    const size_t first = (size_t)sample.file->first_row;
    RowBlock whole, parts;
    size_t last = first;

    row_block_init(&whole, sample.parser->ops->has_fields);
    row_block_init(&parts, sample.parser->ops->has_fields);
    parse_part(&sample, first, sample.size, &whole);
    ck_assert_uint_ge(whole.n_rows, 2);
    for (size_t from = first + 1; from <= sample.size; from++) {
        size_t at = find_row(&sample, 0, sample.size, from);

        if (at == ROW_NOT_FOUND)
            at = sample.size;
        require_msg(at >= from && at >= last, "block at %zu begins at %zu", from, at);
        last = at;
        row_block_reset(&parts);
        parse_part(&sample, first, at, &parts);
        parse_part(&sample, at, sample.size, &parts);
        check_same(&whole, &parts, at);
        /* The place depends only on the byte before it; in a shorter text the search finds the same
         * place or none yet. */
        for (size_t to = from; to <= sample.size; to++) {
            const size_t seen = find_row(&sample, from - 1, to, from);

            require_msg(seen == at || seen == ROW_NOT_FOUND,
                        "from %zu in text up to %zu: %zu, not %zu", from, to, seen, at);
        }
    }
    row_block_clear(&whole);
    row_block_clear(&parts);
    sample_close(&sample);
}
END_TEST

/* ---- names ---- */

static const struct {
    const char *path, *format;
} named[] = {
    { "a9a", "libsvm" },
    { "/data/x.svm", "libsvm" },
    { "day-1.ffm.gz", "libffm" },
    { "adult.CSV", "csv" },
    { "adult.csv.zst", "csv" },
    { "ml-1m/ratings.dat", "ratings" },
    { "u.data", "ratings" },
    { "docword.kos.txt.gz", "bag_of_words" },
    { "book.txt", "text" },
    { "text8.gz", "text" },
    { "train-images-idx3-ubyte.gz", "idx" },
};

START_TEST(names_mean_formats)
{
    for (size_t i = 0; i < G_N_ELEMENTS(named); i++) {
        const RowParserOps *ops = row_parser_ops(&(RubatoDataSpec){ 0 }, named[i].path, NULL);

        ck_assert_ptr_nonnull(ops);
        ck_assert_str_eq(ops->name, named[i].format);
    }
}
END_TEST

START_TEST(an_unknown_format_is_told_the_known_ones)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(load_text(&(RubatoDataSpec){ .format = "parquet" }, "1 1:1\n", 6, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_str_eq(error->message,
                     "there is no data format \"parquet\"; the formats are libsvm, libffm, csv, "
                     "ratings, bag_of_words, text, idx");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("row_formats");
    TCase *reading = tcase_create("reading"), *refusing = tcase_create("refusing");
    TCase *every = tcase_create("every");

    tcase_add_test(reading, ratings_may_be_parted_in_many_ways);
    tcase_add_test(reading, users_and_items_have_keys_of_their_own);
    tcase_add_test(reading, ratings_of_an_older_versions_keys_are_refused);
    tcase_add_test(reading, a_bag_of_words_is_a_row);
    tcase_add_loop_test(reading, a_bag_with_a_bad_line_is_left_out_whole, 0, 5);
    tcase_add_test(reading, text_rows_end_with_their_line);
    tcase_add_test(reading, text_rows_end_after_so_many_words);
    tcase_add_test(reading, text_of_one_line_is_cut_between_words);
    tcase_add_loop_test(reading, idx_rows_are_the_pixels_that_are_not_black, 0, 2);
    tcase_add_loop_test(refusing, idx_labels_must_fit, 0, 2);
    tcase_add_test(refusing, idx_is_refused_where_it_ends_too_early_or_late);
    tcase_add_test(refusing, formats_refuse_with_line_and_column);
    tcase_add_loop_test(every, rows_are_the_same_wherever_blocks_begin, 0,
                        (int)G_N_ELEMENTS(samples));
    tcase_add_test(every, names_mean_formats);
    tcase_add_test(every, an_unknown_format_is_told_the_known_ones);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, refusing);
    suite_add_tcase(suite, every);
    return run_suite(suite);
}
