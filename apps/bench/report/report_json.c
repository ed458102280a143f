/* Results for machines. */
#include <json-glib/json-glib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/report/report.h"
#include "apps/kit/model/app_json.h"
#include "apps/kit/report/app_file.h"

static void add_number(JsonBuilder *json, const char *name, double value)
{
    json_builder_set_member_name(json, name);
    json_builder_add_double_value(json, value);
}

/* null if there is none. */
static void add_number_if(JsonBuilder *json, const char *name, double value, bool is_there)
{
    json_builder_set_member_name(json, name);
    if (is_there)
        json_builder_add_double_value(json, value);
    else
        json_builder_add_null_value(json);
}

static void add_machine(JsonBuilder *json)
{
    g_autofree char *text = report_machine();
    struct utsname system;

    json_builder_set_member_name(json, "machine");
    json_builder_begin_object(json);
    app_json_add_text(json, "text", text);
    add_number(json, "processors", (double)sysconf(_SC_NPROCESSORS_ONLN));
    if (uname(&system) == 0) {
        app_json_add_text(json, "architecture", system.machine);
        app_json_add_text(json, "kernel", system.release);
    }
    json_builder_end_object(json);
    json_builder_set_member_name(json, "build");
    json_builder_begin_object(json);
    app_json_add_text(json, "compiler", __VERSION__);
#ifdef __OPTIMIZE__
    app_json_add_text(json, "kind", "optimised");
#else
    app_json_add_text(json, "kind", "not optimised");
#endif
    json_builder_end_object(json);
}

static void add_goal(JsonBuilder *json, const BenchResult *result)
{
    const BenchGoal *goal = &result->what->goal;
    g_autofree char *text = goal_text(result->what);

    json_builder_set_member_name(json, "goal");
    if (!goal_is_judged(result)) {
        json_builder_add_null_value(json);
        return;
    }
    json_builder_begin_object(json);
    app_json_add_text(json, "text", text);
    add_number_if(json, "ratio", goal->ratio, goal->ratio > 0);
    add_number_if(json, "median", goal->median, goal->median > 0);
    add_number_if(json, "worst", goal->worst, goal->worst > 0);
    add_number_if(json, "p99_by_median", goal->p99, goal->p99 > 0);
    add_number_if(json, "share", goal->share, goal->share > 0);
    json_builder_set_member_name(json, "met");
    json_builder_add_boolean_value(json, goal_is_met(result));
    json_builder_end_object(json);
}

static void add_share(JsonBuilder *json, const BenchResult *result)
{
    json_builder_set_member_name(json, "beside");
    if (result->share.own <= 0) {
        json_builder_add_null_value(json);
        return;
    }
    json_builder_begin_object(json);
    app_json_add_text(json, "name", result->what->beside);
    add_number(json, "share", result->share.own);
    add_number(json, "limit_share", result->share.limit);
    json_builder_end_object(json);
}

static void add_details(JsonBuilder *json, const BenchDetails *details)
{
    json_builder_set_member_name(json, "details");
    json_builder_begin_object(json);
    for (size_t i = 0; i < details->n; i++)
        add_number(json, details->at[i].name, details->at[i].value);
    json_builder_end_object(json);
}

static void add_case(JsonBuilder *json, const BenchResult *result)
{
    const bool has_limit = result->ratio > 0;

    json_builder_begin_object(json);
    app_json_add_text(json, "name", result->what->name);
    app_json_add_text(json, "what", result->what->what);
    app_json_add_text(json, "limit", result->what->limit == NULL ? "none" : result->what->limit);
    app_json_add_text(json, "unit", report_unit(result->what->unit));
    app_json_add_text(json, "better",
                      bench_lower_is_better(result->what->unit) ? "lower" : "higher");
    add_number(json, "min", result->own.min);
    add_number(json, "median", result->own.median);
    add_number(json, "max", result->own.max);
    if (result->own.p99 > 0)
        add_number(json, "p99", result->own.p99);
    add_number_if(json, "limit_min", result->limit.min, has_limit);
    add_number_if(json, "limit_median", result->limit.median, has_limit);
    add_number_if(json, "limit_max", result->limit.max, has_limit);
    add_number_if(json, "ratio", result->ratio, has_limit);
    add_share(json, result);
    add_goal(json, result);
    add_details(json, &result->details);
    json_builder_end_object(json);
}

bool report_json(const char *path, const BenchResult *results, size_t n, GError **error)
{
    g_autoptr(JsonBuilder) json = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    g_autofree char *text = NULL;
    g_autofree char *line = NULL;

    json_builder_begin_object(json);
    add_machine(json);
    json_builder_set_member_name(json, "cases");
    json_builder_begin_array(json);
    for (size_t i = 0; i < n; i++)
        add_case(json, &results[i]);
    json_builder_end_array(json);
    json_builder_end_object(json);
    root = json_builder_get_root(json);
    json_generator_set_root(generator, root);
    json_generator_set_pretty(generator, TRUE);
    text = json_generator_to_data(generator, NULL);
    line = g_strconcat(text, "\n", NULL);
    return app_file_write_text("--json", path, line, error);
}
