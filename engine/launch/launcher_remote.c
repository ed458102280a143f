/* Writes the command that ssh runs on another machine.
 *
 * There, a shell leaves a watcher behind and becomes the program, so that ssh brings back the
 * program's own end. The watcher reads signals' names from the connection and passes them on. When
 * the connection ends, it ends the program and everything that the program has started. It ignores
 * the signals that it sends, because it belongs to the same group. Any login shell on the other
 * side will do: it gets one quoted word.
 *
 * Thread: any. */
#include "engine/launch/launcher_remote.h"
#include "engine/collectives/tensor_tuning.h"

#include <string.h>

#include "engine/cluster/secret_source.h"
#include "engine/faults_on_demand.h"
#include "engine/health/engine_health.h"
#include "engine/launch/launcher_news.h"
#include "engine/placement/measured_needs.h"
#include "io/history/history.h"
#include "io/timeline/timeline.h"

static const char INPUT[] = "exec 3<&0 </dev/null\n";

/* The shell writes the secret that it has read into a pipe. It does so after it has started the
 * watcher, which does not need it. The variable is the shell's own: it is in no command line and no
 * environment. */
static const char SECRET_IN[] = "read -r secret <&3\n";
static const char SECRET_OUT[] = "exec 4<<end\n"
                                 "$secret\n"
                                 "end\n"
                                 "unset secret\n";

/* $$ is the program, because the program replaces the shell in its process. ssh starts commands in
 * a session of their own, so the group is the program's. If it is not, the signal goes to the
 * process alone. */
static const char WATCHER[] = "(trap '' INT TERM HUP\n"
                              "tell() { kill -s \"$1\" -- \"-$$\" || kill -s \"$1\" \"$$\"; }\n"
                              "while read -r signal <&3; do tell \"$signal\"; done\n"
                              "tell TERM; sleep 2; tell KILL) >/dev/null 2>&1 &\n"
                              "exec 3<&-\n";

/* What the nodes of other machines get of this environment, if it is set. */
static const char *const passed_on[] = { WAY_VARIABLE,     CUTOVERS_VARIABLE, FAULTS_VARIABLE,
                                         HISTORY_VARIABLE, NEEDS_VARIABLE,    TIMELINE_VARIABLE };

static void append_word(GString *line, const char *word)
{
    g_autofree char *quoted = g_shell_quote(word);

    g_string_append_c(line, ' ');
    g_string_append(line, quoted);
}

/* value NULL: nothing. */
static void append_variable(GString *line, const char *name, const char *value)
{
    g_autofree char *setting = value != NULL ? g_strdup_printf("%s=%s", name, value) : NULL;

    if (setting != NULL)
        append_word(line, setting);
}

static char *write_script(const RemoteCommand *command)
{
    g_autoptr(GString) script = g_string_new("cd");
    g_autofree char *cluster = g_strdup_printf("RUBATO_CLUSTER=%s", command->cluster_file);
    g_autofree char *node = g_strdup_printf("RUBATO_NODE=%u", command->id);

    append_word(script, command->folder);
    g_string_append(script, " || exit 126\n");
    g_string_append(script, INPUT);
    if (command->reads_secret)
        g_string_append(script, SECRET_IN);
    g_string_append(script, WATCHER);
    if (command->reads_secret)
        g_string_append(script, SECRET_OUT);
    g_string_append(script,
                    command->reads_secret ? "exec env " SECRET_FD_VARIABLE "=4" : "exec env");
    append_word(script, cluster);
    append_word(script, node);
    append_word(script, LAUNCHER_NEWS_VARIABLE "=1");
    for (size_t i = 0; i < G_N_ELEMENTS(passed_on); i++)
        append_variable(script, passed_on[i], g_getenv(passed_on[i]));
    append_variable(script, HEALTH_VARIABLE, command->health);
    for (const char *const *word = command->argv; *word != NULL; word++)
        append_word(script, *word);
    return g_string_free(g_steal_pointer(&script), FALSE);
}

char **remote_command_argv(const RemoteCommand *command, char *const *ssh)
{
    /* Nobody can type a password. A shared connection would outlive this one. */
    static const char *const options[] = { "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no" };
    g_autoptr(GPtrArray) words = g_ptr_array_new();
    g_autofree char *script = write_script(command);
    g_autofree char *quoted = g_shell_quote(script);

    for (; *ssh != NULL; ssh++)
        g_ptr_array_add(words, g_strdup(*ssh));
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++)
        g_ptr_array_add(words, g_strdup(options[i]));
    g_ptr_array_add(words, g_strdup("--"));
    g_ptr_array_add(words, g_strdup(command->host));
    g_ptr_array_add(words, g_strdup_printf("exec sh -c %s", quoted));
    g_ptr_array_add(words, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&words), FALSE);
}
