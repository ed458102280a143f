/* The model's tables: creates them, and fills them if there is a model to load. Runs on main's
 * thread.
 *
 * app_call_on_reporter opens and checks the files, so an error in them fails on every node, and no
 * node waits for one that has given up. */
#include "apps/kit/model/app_model.h"

#include <string.h>

#include "apps/kit/model/app_checksum.h"

char *app_model_checksum(JsonNode *root)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) copy = json_node_copy(root);
    g_autoptr(AppChecksum) checksum = app_checksum_new();
    JsonObject *all = json_node_get_object(root);
    JsonObject *rest = json_object_new();
    g_autoptr(GList) names = json_object_get_members(all);

    for (const GList *name = names; name != NULL; name = name->next)
        if (strcmp(name->data, "checksum") != 0)
            json_object_set_member(rest, name->data,
                                   json_node_copy(json_object_get_member(all, name->data)));
    json_node_take_object(copy, rest);
    json_generator_set_root(generator, copy);
    g_autofree char *text = json_generator_to_data(generator, NULL);
    app_checksum_add(checksum, text, strlen(text));
    return app_checksum_text(checksum);
}

static bool create_tables(App *app, const AppModel *model, GError **error)
{
    for (size_t i = 0; i < model->n_arrays; i++) {
        RubatoTableSpec spec = model->arrays[i].spec;

        if (spec.model == NULL)
            app_set_model(app, &spec);
        if (!app_create_table(app, &spec, error))
            return false;
    }
    return true;
}

typedef struct {
    const AppModel *model;
    AppModelFiles *files; /* the reporting node's */
} Opening;

static bool open_files(App *app, void *data, GError **error)
{
    Opening *opening = data;

    opening->files = app_model_open(app, opening->model, error);
    return opening->files != NULL;
}

static bool load(App *app, const AppModel *model, GError **error)
{
    Opening opening = { .model = model };
    const bool good = app_call_on_reporter(app, "load", open_files, &opening, error);
    g_autoptr(AppModelFiles) files = opening.files;

    return good && (files == NULL || app_model_fill(app, model, files, error)) &&
           rubato_engine_barrier(app->engine, error);
}

static bool check_rows(App *app, void *data, GError **error)
{
    (void)data;
    return app_data_check_keys(app, error);
}

bool app_create_model(App *app, const AppModel *model, GError **error)
{
    if (app->predict != NULL && model->predict == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "--predict: %s does not predict",
                    app->program->name);
        return false;
    }
    return create_tables(app, model, error) &&
           (app->load != NULL ? load(app, model, error)
                              : app_call_on_reporter(app, "start", check_rows, NULL, error));
}
