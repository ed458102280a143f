/* `rubato history check`: judges the history of a run, and says what is wrong with it, as text or
 * as JSON.
 *
 * Thread: main's. */
#include "apps/rubato/history/history.h"

#include <json-glib/json-glib.h>
#include <stdlib.h>
#include <string.h>

#include "apps/kit/model/app_json.h"
#include "apps/rubato/history/history_rules.h"

enum {
    EXIT_WRONG = 1,
    EXIT_USAGE = 2,
    EXIT_INCOMPLETE = 3,
    MOST_SHOWN = 100, /* problems */
};

static const char SUMMARY[] =
    "Judges a history that a run with RUBATO_HISTORY=DIR has written, from its records alone:\n"
    "whether each Get shows what the table's model promises (ASP, BSP, SSP, SparseSSP), whether\n"
    "workers see their own Adds, and whether each Add counts exactly once and none was invented.\n"
    "Says what is wrong, with worker, clock and key.";

static const char DESCRIPTION[] =
    "The exit code is 0 if nothing is wrong, 1 if something is, 2 for a wrong command line, and\n"
    "3 if nothing is wrong in what is there, but the history of a node is missing or incomplete,\n"
    "so that rows cannot be judged.\n"
    "\n"
    "Example: RUBATO_HISTORY=history rubato-hello && rubato history check history";

typedef struct {
    char *rule, *table, *text;
    uint32_t epoch, worker, node;
    bool is_engine, has_key;
    uint64_t clock, key;
} Problem;

typedef struct {
    History *history;
    GArray *problems; /* of Problem: the first ones */
    uint64_t n_problems;
} Report;

static void clear_problem(gpointer data)
{
    Problem *const problem = data;

    g_free(problem->rule);
    g_free(problem->table);
    g_free(problem->text);
}

static void note_problem(void *user, const char *rule, const HistoryTable *table,
                         const HistorySource *source, uint64_t clock, const uint64_t *key,
                         const char *text)
{
    Report *const report = user;

    if (report->n_problems++ >= MOST_SHOWN)
        return;
    const Problem problem = { .rule = g_strdup(rule),
                              .table = g_strdup(table->name),
                              .text = g_strdup(text),
                              .epoch = source->epoch,
                              .worker = source->rank,
                              .node = source->node,
                              .is_engine = source->rank == RECORD_ENGINE,
                              .has_key = key != NULL,
                              .clock = clock,
                              .key = key != NULL ? *key : 0 };
    g_array_append_val(report->problems, problem);
}

/* ---- as text ---- */

static char *who(const Problem *problem)
{
    return problem->is_engine ? g_strdup_printf("node %u between tasks", problem->node)
                              : g_strdup_printf("worker %u of task %u at clock %" G_GUINT64_FORMAT,
                                                problem->worker, problem->epoch, problem->clock);
}

static void print_table(const HistoryTable *table)
{
    g_print("table %s (%s", table->name, table->model);
    if (table->bound == BOUND_SSP || table->bound == BOUND_SPARSE_SSP)
        g_print(", staleness %u", table->staleness);
    g_print("): %" G_GUINT64_FORMAT " Gets, %" G_GUINT64_FORMAT " Adds, %" G_GUINT64_FORMAT
            " Clocks",
            table->n_gets, table->n_adds, table->n_clocks);
    if (table->calls->len > 0)
        g_print(", %u calls of handlers that write", table->calls->len);
    if (!table->sums)
        g_print("; rows not compared: its update rule is %s", table->update);
    else if (table->unjudged != NULL)
        g_print("; rows not compared: %s", table->unjudged);
    else if (!table->was_read)
        g_print("; its last rows are not known");
    g_print("\n");
}

static void print_report(const Report *report, const HistoryCounts *counts)
{
    const History *const history = report->history;

    g_print("%u node%s, %" G_GUINT64_FORMAT " records\n", history->n_nodes,
            history->n_nodes == 1 ? "" : "s", history->n_records);
    for (guint i = 0; i < history->tables->len; i++)
        print_table(g_ptr_array_index(history->tables, i));
    g_print("%" G_GUINT64_FORMAT " rows compared, %" G_GUINT64_FORMAT
            " of them only with the lowest and the highest that may be; %" G_GUINT64_FORMAT
            " not compared\n",
            counts->n_rows, counts->n_undecided, counts->n_unjudged);
    if (history->n_missing > 0)
        g_print("INCOMPLETE: %u node%s\n", history->n_missing,
                history->n_missing == 1 ? " has no whole history: it was lost, or could not write"
                                        : "s have no whole history");
    for (guint i = 0; i < report->problems->len; i++) {
        const Problem *const problem = &g_array_index(report->problems, Problem, i);
        g_autofree char *asker = who(problem);

        g_print("WRONG (%s): table %s, %s", problem->rule, problem->table, asker);
        if (problem->has_key)
            g_print(", key %" G_GUINT64_FORMAT, problem->key);
        g_print(": %s\n", problem->text);
    }
    if (report->n_problems > report->problems->len)
        g_print("… and %" G_GUINT64_FORMAT " more\n", report->n_problems - report->problems->len);
    g_print(report->n_problems > 0   ? "%" G_GUINT64_FORMAT " wrong\n"
            : history->n_missing > 0 ? "nothing wrong in what is there\n"
                                     : "nothing wrong\n",
            report->n_problems);
}

/* ---- as JSON ---- */

static void add_tables(JsonBuilder *builder, const History *history)
{
    json_builder_set_member_name(builder, "tables");
    json_builder_begin_array(builder);
    for (guint i = 0; i < history->tables->len; i++) {
        const HistoryTable *const table = g_ptr_array_index(history->tables, i);

        json_builder_begin_object(builder);
        app_json_add_text(builder, "name", table->name);
        app_json_add_text(builder, "model", table->model);
        app_json_add_int(builder, "gets", table->n_gets);
        app_json_add_int(builder, "adds", table->n_adds);
        app_json_add_int(builder, "clocks", table->n_clocks);
        app_json_add_int(builder, "calls", table->calls->len);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void add_problems(JsonBuilder *builder, const Report *report)
{
    json_builder_set_member_name(builder, "problems");
    json_builder_begin_array(builder);
    for (guint i = 0; i < report->problems->len; i++) {
        const Problem *const problem = &g_array_index(report->problems, Problem, i);

        json_builder_begin_object(builder);
        app_json_add_text(builder, "rule", problem->rule);
        app_json_add_text(builder, "table", problem->table);
        app_json_add_int(builder, "node", problem->node);
        if (!problem->is_engine) {
            app_json_add_int(builder, "task", problem->epoch);
            app_json_add_int(builder, "worker", problem->worker);
            app_json_add_int(builder, "clock", problem->clock);
        }
        if (problem->has_key) { /* JSON has no numbers of 64 bits */
            g_autofree char *key = g_strdup_printf("%" G_GUINT64_FORMAT, problem->key);
            app_json_add_text(builder, "key", key);
        }
        app_json_add_text(builder, "text", problem->text);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void print_json(const Report *report, const HistoryCounts *counts)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();

    json_builder_begin_object(builder);
    app_json_add_int(builder, "records", report->history->n_records);
    app_json_add_int(builder, "nodes_missing", report->history->n_missing);
    add_tables(builder, report->history);
    app_json_add_int(builder, "rows_compared", counts->n_rows);
    app_json_add_int(builder, "rows_undecided", counts->n_undecided);
    app_json_add_int(builder, "rows_not_compared", counts->n_unjudged);
    app_json_add_int(builder, "wrong", report->n_problems);
    add_problems(builder, report);
    json_builder_end_object(builder);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    g_autofree char *text = json_generator_to_data(generator, NULL);
    g_print("%s\n", text);
}

/* ---- the command ---- */

GOptionContext *history_new_context(gboolean *json)
{
    const GOptionEntry entries[] = { { "json", 0, 0, G_OPTION_ARG_NONE, json,
                                       "Print one JSON object", NULL },
                                     G_OPTION_ENTRY_NULL };
    GOptionContext *context = g_option_context_new("check DIR");

    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, SUMMARY);
    g_option_context_set_description(context, DESCRIPTION);
    return context;
}

static int check_folder(const char *folder, bool json)
{
    Report report = { .problems = g_array_new(FALSE, FALSE, sizeof(Problem)) };
    HistoryCounts counts = { 0 };
    g_autoptr(GError) error = NULL;
    int code = EXIT_WRONG;

    g_array_set_clear_func(report.problems, clear_problem);
    report.history = history_read(folder, note_problem, &report, &error);
    if (report.history == NULL) {
        g_printerr("rubato history: %s\n", error->message);
    } else {
        for (guint i = 0; i < report.history->tables->len; i++) {
            HistoryTable *const table = g_ptr_array_index(report.history->tables, i);

            if (table->ragged != NULL)
                history_judge_ragged(report.history, table, &counts);
            else
                history_judge(report.history, table, &counts);
        }
        if (json)
            print_json(&report, &counts);
        else
            print_report(&report, &counts);
        code = report.n_problems > 0           ? EXIT_WRONG
               : report.history->n_missing > 0 ? EXIT_INCOMPLETE
                                               : EXIT_SUCCESS;
    }
    history_free(report.history);
    g_array_unref(report.problems);
    return code;
}

int history_command(int argc, char **argv)
{
    gboolean json = FALSE;
    g_autoptr(GOptionContext) context = history_new_context(&json);
    g_autoptr(GError) error = NULL;
    const char *wrong = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        wrong = error->message;
    else if (argc != 3 || strcmp(argv[1], "check") != 0)
        wrong = "takes one folder: rubato history check DIR";
    if (wrong == NULL)
        return check_folder(argv[2], json);
    g_printerr("rubato history: %s\nTry 'rubato help history'.\n", wrong);
    return EXIT_USAGE;
}
