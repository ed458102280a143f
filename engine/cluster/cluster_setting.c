/* Reads settings of a cluster file: numbers, texts, truth values, hosts, groups. What is wrong with
 * one is refused with its line and what to write.
 *
 * Thread: any; no state beyond the call. */
#include "engine/cluster/cluster_setting.h"

#include <string.h>

#include "engine/cluster/nearest_word.h"

#define MAX_HOST_BYTES 253u

unsigned setting_line(const config_setting_t *setting)
{
    const unsigned line = config_setting_source_line(setting);

    return line == 0 ? 1 : line; /* the root has none */
}

const char *setting_type_name(const config_setting_t *setting)
{
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_GROUP:
        return "a group";
    case CONFIG_TYPE_INT:
        return "a whole number";
    case CONFIG_TYPE_FLOAT:
        return "a number with a fraction";
    case CONFIG_TYPE_STRING:
        return "a text";
    case CONFIG_TYPE_BOOL:
        return "a truth value";
    case CONFIG_TYPE_LIST:
        return "a list";
    default:
        return "something else";
    }
}

bool setting_check_keys(const ClusterFaults *faults, const config_setting_t *group,
                        const char *where, const char *const *known)
{
    const int n = config_setting_length(group);

    for (int i = 0; i < n; i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const char *key = config_setting_name(setting);

        if (g_strv_contains(known, key))
            continue;

        g_autofree char *all = g_strjoinv(", ", (char **)known);
        const char *nearest = nearest_word(key, known);
        if (nearest != NULL)
            return cluster_refuse(faults, setting_line(setting),
                                  "unknown key '%s' in %s; did you mean '%s'? (known here: %s)",
                                  key, where, nearest, all);
        return cluster_refuse(faults, setting_line(setting),
                              "unknown key '%s' in %s; known here: %s", key, where, all);
    }
    return true;
}

bool setting_read_number(const ClusterFaults *faults, const config_setting_t *group,
                         const char *where, const SettingNumber *rule, uint32_t *value)
{
    const config_setting_t *setting = config_setting_get_member(group, rule->key);

    if (setting == NULL && rule->required)
        return cluster_refuse(faults, setting_line(group), "%s has no '%s'; write %s", where,
                              rule->key, rule->example);
    if (setting == NULL) {
        *value = rule->preset;
        return true;
    }
    if (config_setting_type(setting) != CONFIG_TYPE_INT)
        return cluster_refuse(faults, setting_line(setting),
                              "'%s' of %s is %s; write a whole number without quotes, as in %s",
                              rule->key, where, setting_type_name(setting), rule->example);

    const int given = config_setting_get_int(setting);
    if (given < 0 || (uint32_t)given < rule->min || (uint32_t)given > rule->max)
        return cluster_refuse(faults, setting_line(setting),
                              "'%s' of %s is %d; write a number from %u to %u, as in %s", rule->key,
                              where, given, rule->min, rule->max, rule->example);
    *value = (uint32_t)given;
    return true;
}

bool setting_read_text(const ClusterFaults *faults, const config_setting_t *group,
                       const char *where, const char *key, bool required, const char *example,
                       const char **value)
{
    const config_setting_t *setting = config_setting_get_member(group, key);

    if (setting == NULL && required)
        return cluster_refuse(faults, setting_line(group), "%s has no '%s'; write %s", where, key,
                              example);
    if (setting == NULL)
        return true;
    if (config_setting_type(setting) != CONFIG_TYPE_STRING)
        return cluster_refuse(faults, setting_line(setting),
                              "'%s' of %s is %s; write a text in quotes, as in %s", key, where,
                              setting_type_name(setting), example);

    const char *text = config_setting_get_string(setting);
    if (text == NULL || *text == '\0')
        return cluster_refuse(faults, setting_line(setting), "'%s' of %s is empty; write %s", key,
                              where, example);
    *value = text;
    return true;
}

bool setting_read_truth(const ClusterFaults *faults, const config_setting_t *group,
                        const char *where, const char *key, bool *value)
{
    const config_setting_t *setting = config_setting_get_member(group, key);

    if (setting == NULL)
        return true;
    if (config_setting_type(setting) != CONFIG_TYPE_BOOL)
        return cluster_refuse(faults, setting_line(setting), "'%s' of %s is %s; write %s = true;",
                              key, where, setting_type_name(setting), key);
    *value = config_setting_get_bool(setting) != 0;
    return true;
}

static bool is_any_address(const char *host)
{
    static const char *const any[] = { "*", "0.0.0.0", "::", "0", NULL };

    return g_strv_contains(any, host);
}

/* A host ends up in addresses and, for ssh, on a command line; so it holds nothing else than a name
 * or an address can. */
static bool is_host(const char *host)
{
    if (strlen(host) > MAX_HOST_BYTES || !(g_ascii_isalnum(*host) || *host == ':'))
        return false;
    for (; *host != '\0'; host++)
        if (!g_ascii_isalnum(*host) && strchr(".-_:%", *host) == NULL)
            return false;
    return true;
}

bool setting_read_host(const ClusterFaults *faults, const config_setting_t *group,
                       const char *where, char **host)
{
    const char *text = NULL;

    if (!setting_read_text(faults, group, where, "host", /* required= */ true,
                           "host = \"127.0.0.1\";", &text))
        return false;

    const unsigned line = setting_line(config_setting_get_member(group, "host"));
    if (is_any_address(text))
        return cluster_refuse(
            faults, line,
            "'host' of %s is %s, which is no address that others can reach; write the "
            "one by which the other nodes know this machine",
            where, text);
    if (!is_host(text)) {
        g_autofree char *shown = g_strescape(text, NULL);
        return cluster_refuse(
            faults, line,
            "'host' of %s is \"%.80s\"; write a host name or an address alone, as in "
            "host = \"127.0.0.1\";",
            where, shown);
    }
    *host = g_strdup(text);
    return true;
}

const config_setting_t *setting_find_group(const ClusterFaults *faults,
                                           const config_setting_t *parent, const char *where,
                                           const char *key, const char *example)
{
    const config_setting_t *group = config_setting_get_member(parent, key);

    if (group == NULL) {
        cluster_refuse(faults, setting_line(parent), "%s has no '%s'; write %s", where, key,
                       example);
        return NULL;
    }
    if (!config_setting_is_group(group)) {
        cluster_refuse(faults, setting_line(group), "'%s' is %s; write a group, as in %s", key,
                       setting_type_name(group), example);
        return NULL;
    }
    return group;
}
