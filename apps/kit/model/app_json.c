/* Members of JSON objects. Runs on the caller's thread, keeps nothing. */
#include "apps/kit/model/app_json.h"

static JsonNode *member(JsonObject *object, const char *name, JsonNodeType type)
{
    JsonNode *node = object != NULL ? json_object_get_member(object, name) : NULL;

    return node != NULL && JSON_NODE_TYPE(node) == type ? node : NULL;
}

JsonObject *app_json_object(JsonObject *object, const char *name)
{
    JsonNode *node = member(object, name, JSON_NODE_OBJECT);

    return node != NULL ? json_node_get_object(node) : NULL;
}

JsonArray *app_json_array(JsonObject *object, const char *name)
{
    JsonNode *node = member(object, name, JSON_NODE_ARRAY);

    return node != NULL ? json_node_get_array(node) : NULL;
}

const char *app_json_text(JsonObject *object, const char *name)
{
    JsonNode *node = member(object, name, JSON_NODE_VALUE);

    return node != NULL && json_node_get_value_type(node) == G_TYPE_STRING
               ? json_node_get_string(node)
               : NULL;
}

bool app_json_int(JsonObject *object, const char *name, uint64_t *value)
{
    JsonNode *node = member(object, name, JSON_NODE_VALUE);

    if (node == NULL || json_node_get_value_type(node) != G_TYPE_INT64)
        return false;
    *value = (uint64_t)json_node_get_int(node);
    return true;
}

/* A whole number is accepted too: JSON does not distinguish 1.0 from 1. */
bool app_json_double(JsonObject *object, const char *name, double *value)
{
    JsonNode *node = member(object, name, JSON_NODE_VALUE);

    if (node == NULL || (json_node_get_value_type(node) != G_TYPE_INT64 &&
                         json_node_get_value_type(node) != G_TYPE_DOUBLE))
        return false;
    *value = json_node_get_double(node);
    return true;
}

void app_json_add_text(JsonBuilder *builder, const char *name, const char *text)
{
    json_builder_set_member_name(builder, name);
    if (text != NULL)
        json_builder_add_string_value(builder, text);
    else
        json_builder_add_null_value(builder);
}

void app_json_add_int(JsonBuilder *builder, const char *name, uint64_t value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_int_value(builder, (gint64)value);
}
