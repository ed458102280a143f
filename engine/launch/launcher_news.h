/* What a node tells `rubato run`, which has started it: that the run goes on without a lost node,
 * that it has come to its end, and that the node's own end is not that of the program.
 *
 * The news is a sequence of bytes in the node's standard error, which terminals leave out if they
 * ever see it. So it comes from nodes of other machines, too. The launcher takes it out of its
 * line. The environment variable LAUNCHER_NEWS_VARIABLE tells a node that somebody listens.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_NEWS_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_NEWS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define LAUNCHER_NEWS_VARIABLE "RUBATO_LAUNCHER"

typedef enum {
    LAUNCHER_NEWS_LOST,  /* the run goes on without a node. Several nodes tell of it */
    LAUNCHER_NEWS_ENDED, /* all nodes have left the run, or were lost, and those that live need none
                           * of the others. Several nodes tell of it */
    LAUNCHER_NEWS_SERVED, /* this process ends without a failure, and its program has not come to
                           * its end: RUBATO_ERROR_SERVED */
} LauncherNewsKind;

typedef struct {
    LauncherNewsKind kind;
    uint32_t id;          /* of the node that is lost, or has served; else 0 */
    uint64_t incarnation; /* which process of the node is lost: none other has had this number */
} LauncherNews;

/* The run goes on without that process of the node. */
void launcher_news_tell_lost(uint32_t id, uint64_t incarnation);

/* A run that goes on without lost nodes has ended. */
void launcher_news_tell_end(void);

/* The process, which is of this node, ends with RUBATO_ERROR_SERVED. */
void launcher_news_tell_served(uint32_t id);

/* Takes the first news out of a line. Returns whether there was one. */
bool launcher_news_take(GString *line, LauncherNews *news);

#endif
