/* The command `rubato checkpoint`: what is in a directory of snapshots, and asking for another. */
#include "apps/rubato/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "apps/rubato/usage.h"

#define EXIT_DIFFERENT 1

#define TAKE_TIMEOUT_S 60
#define MOST_READINGS 100 /* of a directory */

static const char SUMMARY[] =
    "Looks into a directory of snapshots, which rubato_engine_snapshot and --checkpoint write.\n"
    "  take DIR [SECONDS]   have the run that writes there take one now, and print its number;\n"
    "                       give up after so many seconds (60; inf: never) without an answer\n"
    "  list DIR             a line for each whole snapshot, the newest last\n"
    "  verify DIR [NUMBER]  read every byte of all snapshots, or of one\n"
    "  show DIR [NUMBER]    the tables of the newest one, or of another\n"
    "  diff DIR A B         which rows of two snapshots differ\n"
    "  compact DIR [KEEP]   if the newest one builds on others, write it again with all rows; "
    "then\n"
    "                       keep the newest KEEP and those that they build on (0: all); refused\n"
    "                       while a run writes there\n"
    "  export DIR NUMBER FOLDER\n"
    "                       write its tables as NumPy arrays into FOLDER";

static const char DESCRIPTION[] =
    "The exit code is 0 if all is well, 1 if a snapshot is damaged, not there or not taken, or\n"
    "if two differ, and 2 for a wrong command line.\n"
    "\n"
    "Example: rubato checkpoint list snapshots";

GOptionContext *checkpoint_new_context(void)
{
    GOptionContext *context = g_option_context_new("COMMAND DIR ...");

    g_option_context_set_summary(context, SUMMARY);
    g_option_context_set_description(context, DESCRIPTION);
    return context;
}

static int fail_checkpoint(const GError *error)
{
    g_printerr("rubato checkpoint: %s\n", error->message);
    return EXIT_FAILURE;
}

/* Whether a snapshot that was there is not any more: the run that writes there has removed it. What
 * could not be read of it is no damage then. */
static bool is_gone(const char *directory, uint64_t number)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, NULL))
        return false;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] == number)
            return false;
    return true;
}

static void tell_gone(const char *directory, uint64_t number)
{
    g_printerr("rubato checkpoint: %s: snapshot %" G_GUINT64_FORMAT " was removed meanwhile\n",
               directory, number);
}

/* Why a snapshot that has been opened cannot be read. */
static int fail_reading(const char *directory, const RubatoSnapshot *snapshot, const GError *error)
{
    const uint64_t number = rubato_snapshot_number(snapshot);

    if (!is_gone(directory, number))
        return fail_checkpoint(error);
    tell_gone(directory, number);
    return EXIT_FAILURE;
}

/* ---- what is in a snapshot ---- */

/* (transfer full) */
static char *time_text(const RubatoSnapshot *snapshot)
{
    const int64_t seconds = rubato_snapshot_time_us(snapshot) / G_USEC_PER_SEC;
    g_autoptr(GDateTime) time = g_date_time_new_from_unix_local(seconds);

    return time != NULL ? g_date_time_format(time, "%Y-%m-%d %H:%M:%S")
                        : g_strdup("at an unknown time");
}

/* The note on one line. (transfer full) */
static char *note_text(const RubatoSnapshot *snapshot)
{
    const char *note = rubato_snapshot_note(snapshot);
    g_autofree char *line = g_strdup(note != NULL ? note : "");

    g_strchomp(g_strdelimit(line, "\n\r\t", ' '));
    return *line != '\0' ? g_strdup_printf("  %s", line) : g_strdup("");
}

static void print_line(const RubatoSnapshot *snapshot)
{
    g_autofree char *time = time_text(snapshot);
    g_autofree char *note = note_text(snapshot);
    uint64_t n_rows = 0, n_bytes = 0;

    for (size_t i = 0; i < rubato_snapshot_n_tables(snapshot); i++) {
        n_rows += rubato_snapshot_table(snapshot, i)->n_rows;
        n_bytes += rubato_snapshot_table(snapshot, i)->n_bytes;
    }
    g_autofree char *size = g_format_size_full(n_bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *base =
        rubato_snapshot_base(snapshot) == 0
            ? g_strdup("")
            : g_strdup_printf("  on %" G_GUINT64_FORMAT, rubato_snapshot_base(snapshot));
    g_print("%6" G_GUINT64_FORMAT "  %s  %zu %s  %" G_GUINT64_FORMAT " rows  %s%s%s\n",
            rubato_snapshot_number(snapshot), time, rubato_snapshot_n_tables(snapshot),
            rubato_snapshot_n_tables(snapshot) == 1 ? "table" : "tables", n_rows, size, base, note);
}

static void print_table(const RubatoSnapshotTable *table)
{
    g_autofree char *range = table->holds_range ? g_strdup_printf(" of %" G_GUINT64_FORMAT
                                                                  " keys from %" G_GUINT64_FORMAT,
                                                                  table->n_keys, table->first_key)
                                                : g_strdup("");
    g_autofree char *width = table->shape == RUBATO_SHAPE_RAGGED
                                 ? g_strdup("of different lengths")
                                 : g_strdup_printf("× %u", table->width);
    g_autofree char *size = g_format_size_full(table->n_bytes, G_FORMAT_SIZE_IEC_UNITS);

    g_print("%s\n", table->name);
    g_print("  rows     %" G_GUINT64_FORMAT ", %s %s\n", table->n_rows,
            rubato_dtype_name(table->dtype), width);
    g_print("  storage  %s%s\n", table->storage, range);
    g_print("  rule     %s, %u values of state\n", table->update, table->state_width);
    if (strcmp(table->admit, "all") != 0)
        g_print("  admits   %s\n", table->admit);
    if (table->clock > 0) /* it was taken in the middle of a task */
        g_print("  clock    %" G_GUINT64_FORMAT ", of the slowest worker\n", table->clock);
    g_print("  on disk  %s in %u parts\n", size, table->n_parts);
}

/* ---- the commands: each gets what follows its name ---- */

/* The number of a snapshot that an argument names; 0, for the newest, if it is NULL. If there is
 * none in it, *code is the exit code. */
static bool read_number(const char *text, uint64_t *number, int *code)
{
    guint64 read = 0;

    if (text != NULL && !g_ascii_string_to_unsigned(text, 10, 1, UINT64_MAX, &read, NULL)) {
        g_autofree char *problem =
            g_strdup_printf("expected the number of a snapshot, found \"%s\"", text);

        *code = fail_usage("checkpoint", problem);
        return false;
    }
    *number = read;
    return true;
}

typedef bool (*EachFunc)(const RubatoSnapshot *snapshot, GError **error);

/* all_gone: a run has removed each that the directory had when it was read. */
static int try_each(const char *directory, EachFunc function, bool *all_gone)
{
    g_autoptr(GError) error = NULL;
    g_autofree uint64_t *numbers = NULL;
    int code = EXIT_SUCCESS;
    size_t n;

    *all_gone = false;
    if (!rubato_snapshot_list(directory, &numbers, &n, &error))
        return fail_checkpoint(error);
    if (n == 0) {
        g_printerr("rubato checkpoint: %s: there is no snapshot in it\n", directory);
        return EXIT_FAILURE;
    }
    *all_gone = true;
    for (size_t i = 0; i < n; i++) {
        g_autoptr(GError) fault = NULL;
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, numbers[i], &fault);
        const bool good = snapshot != NULL && function(snapshot, &fault);

        if (!good && is_gone(directory, numbers[i])) {
            tell_gone(directory, numbers[i]);
            continue;
        }
        *all_gone = false;
        if (!good)
            code = fail_checkpoint(fault);
    }
    return code;
}

/* Does something with each snapshot; what is wrong with one does not keep it from the next. If all
 * of them are removed meanwhile, the run has written others, and the directory is read again. Each
 * time a run would have to be faster than this reads one manifest; so there is an end to it. */
static int for_each(const char *directory, EachFunc function)
{
    bool all_gone = true;
    int code = EXIT_SUCCESS;

    for (unsigned i = 0; all_gone && i < MOST_READINGS; i++)
        code = try_each(directory, function, &all_gone);
    return code;
}

/* Anybody may ask who may write into the directory. */
static int take(char **arguments)
{
    g_autoptr(GError) error = NULL;
    double timeout_s = TAKE_TIMEOUT_S;
    uint64_t number;

    if (arguments[1] != NULL) {
        char *end;

        timeout_s = g_ascii_strtod(arguments[1], &end);
        if (end == arguments[1] || *end != '\0' || !(timeout_s > 0)) {
            g_autofree char *text =
                g_strdup_printf("expected a number of seconds, found \"%s\"", arguments[1]);

            return fail_usage("checkpoint", text);
        }
    }
    if (!rubato_snapshot_ask(arguments[0], timeout_s, &number, &error))
        return fail_checkpoint(error);
    g_print("snapshot %" G_GUINT64_FORMAT "\n", number);
    return EXIT_SUCCESS;
}

static bool list_one(const RubatoSnapshot *snapshot, GError **error)
{
    (void)error;
    print_line(snapshot);
    return true;
}

static int list(char **arguments)
{
    return for_each(arguments[0], list_one);
}

/* What rounding has lost, table by table. */
static bool print_loss(const RubatoSnapshot *snapshot, GError **error)
{
    for (size_t i = 0; i < rubato_snapshot_n_tables(snapshot); i++) {
        const char *const name = rubato_snapshot_table(snapshot, i)->name;
        RubatoSnapshotLoss loss;

        if (!rubato_snapshot_loss(snapshot, name, &loss, error))
            return false;
        if (loss.n_values > 0)
            g_print("  table %s: rounding has lost %.3g at most, %.3g in the root mean square\n",
                    name, loss.largest, loss.root_mean_square);
    }
    return true;
}

static bool verify_one(const RubatoSnapshot *snapshot, GError **error)
{
    if (!rubato_snapshot_verify(snapshot, error))
        return false;
    g_print("snapshot %" G_GUINT64_FORMAT " is good\n", rubato_snapshot_number(snapshot));
    return print_loss(snapshot, error);
}

/* What no list has, and a run that goes on passes over. for_each has told why a directory cannot be
 * read. */
static int tell_torn(const char *directory)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list_torn(directory, &numbers, &n, NULL))
        return EXIT_FAILURE;
    for (size_t i = 0; i < n; i++)
        g_printerr("rubato checkpoint: %s: snapshot %" G_GUINT64_FORMAT
                   " is not whole: it has no manifest\n",
                   directory, numbers[i]);
    return n > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int verify(char **arguments)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = NULL;
    uint64_t number;
    int code;

    if (arguments[1] == NULL) {
        const int of_snapshots = for_each(arguments[0], verify_one);
        const int of_others = tell_torn(arguments[0]);

        return of_snapshots != EXIT_SUCCESS ? of_snapshots : of_others;
    }
    if (!read_number(arguments[1], &number, &code))
        return code;
    snapshot = rubato_snapshot_open(arguments[0], number, &error);
    if (snapshot == NULL)
        return fail_checkpoint(error);
    return verify_one(snapshot, &error) ? EXIT_SUCCESS
                                        : fail_reading(arguments[0], snapshot, error);
}

static const char *const packings[] = {
    [RUBATO_PACKING_NONE] = "",
    [RUBATO_PACKING_ZSTD] = ", packed by zstd",
    [RUBATO_PACKING_BF16] = ", rounded to bf16",
    [RUBATO_PACKING_8BIT] = ", rounded to 8 bits",
};

static int show(char **arguments)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;
    int code;

    if (!read_number(arguments[1], &number, &code))
        return code;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(arguments[0], number, &error);
    if (snapshot == NULL)
        return fail_checkpoint(error);
    g_autofree char *time = time_text(snapshot);
    g_print("snapshot %" G_GUINT64_FORMAT ", %s%s\n", rubato_snapshot_number(snapshot), time,
            packings[rubato_snapshot_packing(snapshot)]);
    if (rubato_snapshot_base(snapshot) != 0)
        g_print("holds what changed since snapshot %" G_GUINT64_FORMAT ", on which it builds\n",
                rubato_snapshot_base(snapshot));
    if (rubato_snapshot_note(snapshot) != NULL)
        g_print("%s\n", rubato_snapshot_note(snapshot));
    for (size_t i = 0; i < rubato_snapshot_n_tables(snapshot); i++)
        print_table(rubato_snapshot_table(snapshot, i));
    return EXIT_SUCCESS;
}

static int diff(char **arguments)
{
    g_autoptr(GError) error = NULL;
    uint64_t numbers[2];
    bool same;
    int code;

    if (!read_number(arguments[1], &numbers[0], &code) ||
        !read_number(arguments[2], &numbers[1], &code))
        return code;
    g_autoptr(RubatoSnapshot) left = rubato_snapshot_open(arguments[0], numbers[0], &error);
    g_autoptr(RubatoSnapshot) right =
        left != NULL ? rubato_snapshot_open(arguments[0], numbers[1], &error) : NULL;
    if (right == NULL)
        return fail_checkpoint(error);
    if (!checkpoint_diff(left, right, &same, &error)) /* the older one goes first */
        return fail_reading(
            arguments[0],
            rubato_snapshot_number(left) < rubato_snapshot_number(right) ? left : right, error);
    return same ? EXIT_SUCCESS : EXIT_DIFFERENT;
}

static int export(char **arguments)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;
    int code;

    if (!read_number(arguments[1], &number, &code))
        return code;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(arguments[0], number, &error);
    if (snapshot == NULL)
        return fail_checkpoint(error);
    return checkpoint_export(snapshot, arguments[2], &error)
               ? EXIT_SUCCESS
               : fail_reading(arguments[0], snapshot, error);
}

static int compact(char **arguments)
{
    g_autoptr(GError) error = NULL;
    guint64 keep = 0;
    uint64_t number;

    if (arguments[1] != NULL &&
        !g_ascii_string_to_unsigned(arguments[1], 10, 0, UINT32_MAX, &keep, NULL)) {
        g_autofree char *text =
            g_strdup_printf("expected how many snapshots to keep, found \"%s\"", arguments[1]);

        return fail_usage("checkpoint", text);
    }
    if (!rubato_snapshot_compact(arguments[0], (uint32_t)keep, &number, &error))
        return fail_checkpoint(error);
    g_print("snapshot %" G_GUINT64_FORMAT " holds all rows\n", number);
    return EXIT_SUCCESS;
}

static const struct {
    const char *name, *usage;
    int least, most; /* arguments */
    int (*run)(char **arguments);
} commands[] = {
    { "take", "take DIR [SECONDS]", 1, 2, take },
    { "list", "list DIR", 1, 1, list },
    { "verify", "verify DIR [NUMBER]", 1, 2, verify },
    { "show", "show DIR [NUMBER]", 1, 2, show },
    { "diff", "diff DIR A B", 3, 3, diff },
    { "compact", "compact DIR [KEEP]", 1, 2, compact },
    { "export", "export DIR NUMBER FOLDER", 3, 3, export },
};

int checkpoint_command(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = checkpoint_new_context();
    g_autoptr(GError) error = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("checkpoint", error->message);
    for (size_t i = 0; argc > 1 && i < G_N_ELEMENTS(commands); i++) {
        const int n_arguments = argc - 2;

        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (n_arguments >= commands[i].least && n_arguments <= commands[i].most)
            return commands[i].run(argv + 2); /* a NULL ends them */
        g_autofree char *usage = g_strdup_printf("rubato checkpoint %s", commands[i].usage);
        return fail_usage("checkpoint", usage);
    }
    return fail_usage("checkpoint", "which command? take, list, verify, show, diff, compact or "
                                    "export");
}
