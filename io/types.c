/* The words that every part shares: the dtypes' sizes and names, the error domain.
 *
 * Any thread; no state. */
#include <rubato/error.h>
#include <rubato/types.h>

GQuark rubato_error_quark(void)
{
    return g_quark_from_static_string("rubato-error-quark");
}

size_t rubato_dtype_size(RubatoDtype dtype)
{
    switch (dtype) {
    case RUBATO_F32:
    case RUBATO_I32:
        return 4;
    case RUBATO_F64:
    case RUBATO_I64:
        return 8;
    case RUBATO_F16:
    case RUBATO_BF16:
    case RUBATO_I16:
        return 2;
    case RUBATO_U8:
    case RUBATO_I8:
    case RUBATO_BOOL:
        return 1;
    }
    return 0;
}

const char *rubato_dtype_name(RubatoDtype dtype)
{
    switch (dtype) {
    case RUBATO_F32:
        return "f32";
    case RUBATO_F64:
        return "f64";
    case RUBATO_I32:
        return "i32";
    case RUBATO_I64:
        return "i64";
    case RUBATO_U8:
        return "u8";
    case RUBATO_F16:
        return "f16";
    case RUBATO_BF16:
        return "bf16";
    case RUBATO_I8:
        return "i8";
    case RUBATO_I16:
        return "i16";
    case RUBATO_BOOL:
        return "bool";
    }
    return "?";
}
