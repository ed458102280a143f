/* See status_json.h. */
#include "apps/rubato/status/status_json.h"

#include <rubato/error.h>
#include <string.h>

enum { MOST_DEEP = 32 }; /* the parser calls itself for each level */

/* Whether brackets lie no deeper than the parser may go. */
static bool is_flat(const char *text, size_t n)
{
    unsigned depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && (text[i] == '[' || text[i] == '{') && ++depth > MOST_DEEP)
            return false;
        else if (!in_string && (text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
    }
    return true;
}

JsonNode *status_json_read(const char *text, size_t n, GError **error)
{
    g_autoptr(JsonParser) parser = json_parser_new_immutable();
    g_autoptr(GError) fault = NULL;
    const char *wrong = NULL;

    if (n == 0)
        wrong = "it is empty";
    else if (!g_utf8_validate(text, (gssize)n, NULL) || memchr(text, '\0', n) != NULL)
        wrong = "it is no text";
    else if (!is_flat(text, n))
        wrong = "its lists lie too deep in one another";
    else if (!json_parser_load_from_data(parser, text, (gssize)n, &fault))
        wrong = fault->message;
    else if (json_parser_get_root(parser) == NULL ||
             !JSON_NODE_HOLDS_OBJECT(json_parser_get_root(parser)))
        wrong = "it is no object";
    else if (status_json_count(json_node_get_object(json_parser_get_root(parser)),
                               "rubato_status") < 0)
        wrong = "it has no rubato_status";
    if (wrong == NULL)
        return json_node_ref(json_parser_get_root(parser));
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "what answers is no node of a run: %s",
                wrong);
    return NULL;
}

static JsonNode *find(JsonObject *object, const char *name)
{
    return object != NULL ? json_object_get_member(object, name) : NULL;
}

/* The value of that type; NULL if it is another one. */
static JsonNode *find_value(JsonObject *object, const char *name, GType type)
{
    JsonNode *const node = find(object, name);

    return node != NULL && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == type
               ? node
               : NULL;
}

int64_t status_json_count(JsonObject *object, const char *name)
{
    JsonNode *const node = find_value(object, name, G_TYPE_INT64);

    const int64_t count = node != NULL ? json_node_get_int(node) : -1;

    return MAX(count, -1);
}

double status_json_seconds(JsonObject *object, const char *name)
{
    JsonNode *const node = find_value(object, name, G_TYPE_DOUBLE);
    const int64_t whole = status_json_count(object, name);

    return node != NULL ? json_node_get_double(node) : (double)MAX(whole, 0);
}

bool status_json_flag(JsonObject *object, const char *name)
{
    JsonNode *const node = find_value(object, name, G_TYPE_BOOLEAN);

    return node != NULL && json_node_get_boolean(node);
}

char *status_json_printable(const char *text)
{
    GString *const printable = g_string_new(NULL);

    for (const char *at = text; *at != '\0'; at = g_utf8_next_char(at)) {
        const gunichar c = g_utf8_get_char(at);

        g_string_append_unichar(printable, g_unichar_isprint(c) ? c : '?');
    }
    return g_string_free(printable, FALSE);
}

char *status_json_text(JsonObject *object, const char *name)
{
    JsonNode *const node = find_value(object, name, G_TYPE_STRING);

    return node != NULL ? status_json_printable(json_node_get_string(node)) : NULL;
}

JsonObject *status_json_object(JsonObject *object, const char *name)
{
    JsonNode *const node = find(object, name);

    return node != NULL && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

static JsonArray *find_list(JsonObject *object, const char *name)
{
    JsonNode *const node = find(object, name);

    return node != NULL && JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
}

unsigned status_json_length(JsonObject *object, const char *name)
{
    JsonArray *const list = find_list(object, name);

    return list != NULL ? json_array_get_length(list) : 0;
}

JsonObject *status_json_element(JsonObject *object, const char *name, unsigned i)
{
    JsonNode *const node = i < status_json_length(object, name)
                               ? json_array_get_element(find_list(object, name), i)
                               : NULL;

    return node != NULL && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}
