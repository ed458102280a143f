/* See words.h. */
#include "words.h"

const char *message_copy(RubatoDtype dtype)
{
    return rubato_dtype_name(dtype);
}
